// SPDX-License-Identifier: Apache-2.0

package netlab

import "testing"

func TestParseWrk(t *testing.T) {
	const clean = `Running 3s test @ http://10.1.1.1/
  1 threads and 32 connections
  134582 requests in 3.00s, 19.89MB read
Requests/sec:  44830.33
Transfer/sec:      6.63MB
`
	const failing = `  9 requests in 3.00s, 19.89KB read
  Socket errors: connect 1, read 2, write 3, timeout 4
  Non-2xx or 3xx responses: 5
Requests/sec:      3.00
`
	for _, c := range []struct {
		name, text string
		want       WrkResult
		broken     int
	}{
		{"clean", clean, WrkResult{Requests: 134582, Rate: 44830.33}, 0},
		{"failing", failing, WrkResult{Requests: 9, NotOK: 5, Rate: 3, connect: 1, read: 2, write: 3, timeout: 4}, 10},
	} {
		got, err := parseWrk(c.text)
		if err != nil || got != c.want || got.Broken() != c.broken {
			t.Errorf("%s: %+v, %d broken, %v; want %+v, %d broken", c.name, got, got.Broken(), err, c.want, c.broken)
		}
	}
	if _, err := parseWrk("unable to connect to 10.1.1.1:http Connection refused\n"); err == nil {
		t.Error("output without requests is not an error")
	}
}
