// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// captured is a packet of FRR's bfdd while it comes up.
const captured = "20480318" + "6f1c2f3d" + "0a0b0c0d" + "000f4240" + "000186a0" + "0000c350"

func hexBytes(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParse(t *testing.T) {
	got, err := parse(hexBytes(t, captured))
	want := packet{
		state: down, multiplier: 3, my: 0x6f1c2f3d, your: 0x0a0b0c0d,
		desiredMinTx: time.Second, requiredMinRx: 100 * time.Millisecond,
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// RFC 5880 §6.8.6, in its order: each packet has one fault and, where there are
// later rules, breaks one of those too.
func TestParseDiscards(t *testing.T) {
	for name, c := range map[string]struct {
		at    int
		bytes []byte
		cut   int
		want  string
	}{
		"empty":                         {cut: 24, want: errShort.Error()},
		"cut off":                       {cut: 1, want: errShort.Error()},
		"version 0":                     {at: 0, bytes: []byte{0x00, 0x48, 0}, want: "packet of version 0"},
		"version 2":                     {at: 0, bytes: []byte{0x40}, want: "packet of version 2"},
		"length below the header's":     {at: 2, bytes: []byte{0, 23}, want: "packet with length 23"},
		"length without authentication": {at: 1, bytes: []byte{0x44, 3, 24}, want: "packet with length 24"},
		"length beyond the datagram":    {at: 2, bytes: []byte{0, 25}, want: errShort.Error()},
		"multiplier 0":                  {at: 1, bytes: []byte{0x49, 0}, want: errMultiplier.Error()},
		"multipoint":                    {at: 1, bytes: []byte{0x49, 3, 24, 0, 0, 0, 0}, want: errMultipoint.Error()},
		"my discriminator 0":            {at: 1, bytes: []byte{0x80, 3, 24, 0, 0, 0, 0, 0, 0, 0, 0}, want: errMyZero.Error()},
		"your discriminator 0, init":    {at: 1, bytes: []byte{0x80, 3, 24, 0, 0, 0, 1, 0, 0, 0, 0}, want: errYourZero.Error()},
		"your discriminator 0, up":      {at: 1, bytes: []byte{0xc0, 3, 24, 0, 0, 0, 1, 0, 0, 0, 0}, want: errYourZero.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			b := hexBytes(t, captured)
			copy(b[c.at:], c.bytes)
			if _, err := parse(b[:len(b)-c.cut]); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestParseTakes(t *testing.T) {
	for name, change := range map[string]func(b []byte) []byte{
		"your discriminator 0, down":       func(b []byte) []byte { clear(b[8:12]); return b },
		"your discriminator 0, admin down": func(b []byte) []byte { clear(b[8:12]); b[1] = 0; return b },
		"bytes behind the packet":          func(b []byte) []byte { return append(b, 1, 2, 3) },
		"unknown diagnostic":               func(b []byte) []byte { b[0] |= 31; return b },
	} {
		if _, err := parse(change(hexBytes(t, captured))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// bytes restores every packet that parse accepts, except for fields that are never
// sent: authentication, demand mode and the echo function.
func FuzzParse(f *testing.F) {
	for _, begin := range []string{
		captured[:8], "3ff20318", "20000318", // with all flags and an unknown diagnostic; administratively down
		"00480318", "20440318", "20480317", "20480319", "20480018", "20490318",
		"2048031800000000", "2088031800000001" + "00000000",
	} {
		f.Add(hexBytes(f, begin+captured[len(begin):]))
	}
	f.Add(hexBytes(f, "20c4031a"+"6f1c2f3d"+"0a0b0c0d"+"000f4240"+"000186a0"+"00000000"+"0102"))
	f.Add([]byte{0x20})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parse(b)
		if err != nil {
			if p != (packet{}) {
				t.Errorf("%v, but a packet: %+v", err, p)
			}
			return
		}
		again := p.bytes()
		got, err := parse(again[:])
		p.authenticated, p.demand = false, false
		if diff := cmp.Diff(p, got, cmp.AllowUnexported(packet{})); err != nil || diff != "" {
			t.Errorf("%x: %v\n%s", b, err, diff)
		}
		if !bytes.Equal(again[4:20], b[4:20]) {
			t.Errorf("%x is written as %x", b, again)
		}
	})
}

func TestDiagnosticString(t *testing.T) {
	for d, want := range map[Diagnostic]string{
		NoDiagnostic: "no diagnostic", DetectionTimeExpired: "control detection time expired",
		NeighbourSignaledDown: "neighbour signaled session down", AdministrativelyDown: "administratively down",
		30: "diagnostic 30",
	} {
		if got := d.String(); got != want {
			t.Errorf("%d: got %q, want %q", d, got, want)
		}
	}
}
