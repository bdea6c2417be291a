// SPDX-License-Identifier: Apache-2.0

// How numbers and times are written, as in the tables of the command line.

/** A number with three digits and a decimal prefix: 0, 999, 1.23k, 45.6M. */
export function human(value) {
  if (!(value > 0)) return "0";
  if (value < 1) return "<1";
  const prefixes = ["", "k", "M", "G", "T", "P", "E"];
  let i = 0;
  for (; value >= 999.5 && i < prefixes.length - 1; i++) value /= 1000;
  const decimals = i === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return value.toFixed(decimals) + prefixes[i];
}

/** A rate of bytes as one of bits, which is how links are measured. */
export const bits = (bytesPerSecond) => human(8 * bytesPerSecond);

/** A count with separators. */
export const count = (value) => value.toLocaleString("en");

/** A part of one, with one decimal. */
export const percent = (share) => (100 * share).toFixed(1) + "%";

/** The time from then to now, in its so many largest units. */
export function age(then, now, most = 2) {
  let seconds = Math.max(0, Math.round((now - Date.parse(then)) / 1000));
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const parts = [];
  for (const [size, name] of units) {
    const n = Math.floor(seconds / size);
    seconds -= n * size;
    if (n > 0 || (size === 1 && parts.length === 0)) parts.push(`${n} ${name}`);
    if (parts.length === most) break;
  }
  return parts.join(" ");
}

/** A VIP as the command line writes it. */
export function endpoint(service) {
  const host = service.address.includes(":") ? `[${service.address}]` : service.address;
  const segment = service.segment ? ` ${service.segment.type} ${service.segment.id}` : "";
  return `${service.protocol} ${host}:${service.port}${segment}`;
}
