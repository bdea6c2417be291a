// SPDX-License-Identifier: Apache-2.0

// Small graphs of what happened in the last minutes, as inline SVG. A second of
// which nothing is known is null, and a gap in the line.

const SVG = "http://www.w3.org/2000/svg";

/** How many seconds are shown. */
export const LENGTH = 300;

/** A graph in an element: a line and the area below it. The function that it
 * returns draws points. */
export function graph(host, { width, height }) {
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const area = shape("path", { class: "area" });
  const line = shape("path", { class: "line", "vector-effect": "non-scaling-stroke" });
  svg.append(area, line);
  host.append(svg);
  return (points) => {
    const runs = runsOf(points, width, height);
    line.setAttribute("d", runs.map((run) => "M" + run.join("L")).join(""));
    area.setAttribute("d", runs.map((run) => closed(run, height)).join(""));
  };
}

function shape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** The points as places, in runs without a gap. The scale begins at zero. */
function runsOf(points, width, height) {
  const top = Math.max(1, ...points.filter((p) => p !== null)) * 1.08;
  const runs = [];
  let run = null;
  const step = width / (LENGTH - 1);
  const first = LENGTH - points.length;
  points.forEach((p, i) => {
    if (p === null) {
      run = null;
      return;
    }
    if (!run) runs.push((run = []));
    run.push(`${((first + i) * step).toFixed(1)} ${(height - 1 - (p / top) * (height - 2)).toFixed(1)}`);
  });
  return runs;
}

function closed(run, height) {
  const x = (place) => place.split(" ")[0];
  return `M${x(run[0])} ${height}L${run.join("L")}L${x(run.at(-1))} ${height}Z`;
}

/** Adds the latest second to a list of points, which keeps its length. */
export function push(points, value) {
  points.push(value);
  if (points.length > LENGTH) points.splice(0, points.length - LENGTH);
}
