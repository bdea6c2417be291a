// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSummary(t *testing.T) {
	tests := []struct {
		name    string
		events  string
		success bool
		want    string
	}{
		{
			name: "passed and skipped",
			events: `
{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:3: must be root\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"pass","Package":"p","Elapsed":0.25}
{"Action":"skip","Package":"q","Elapsed":0}`,
			success: true,
			want: `ok    p  0.2s  1 passed, 0 failed, 1 skipped
-     q  0.0s  0 passed, 0 failed, 0 skipped
skipped  p TestB: b_test.go:3: must be root
1 passed, 0 failed, 1 skipped
`,
		},
		{
			name: "failed test",
			events: `
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: got 1, want 2\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- FAIL: TestA (0.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"fail","Package":"p","Elapsed":1}`,
			want: `FAIL  p TestA
    a_test.go:7: got 1, want 2
--- FAIL: TestA (0.00s)
FAIL  p  1.0s  0 passed, 1 failed, 0 skipped
failed  p TestA: a_test.go:7: got 1, want 2
0 passed, 1 failed, 0 skipped
`,
		},
		{
			name: "does not build",
			events: `
{"ImportPath":"p [p.test]","Action":"build-output","Output":"a.go:3:2: undefined: x\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"fail","Package":"p","Elapsed":0,"FailedBuild":"p [p.test]"}`,
			want: `a.go:3:2: undefined: x
FAIL  p  0.0s  0 passed, 1 failed, 0 skipped
failed  p: no test of it failed, but the package did
0 passed, 1 failed, 0 skipped
`,
		},
		{
			name: "time limit",
			events: `
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"output","Package":"p","Test":"TestB","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p","Elapsed":9}`,
			want: `panic: test timed out
FAIL  p  9.0s  1 passed, 1 failed, 0 skipped
failed  p: no test of it failed, but the package did
1 passed, 1 failed, 0 skipped
`,
		},
		{
			name: "no package at all",
			want: "0 passed, 1 failed, 0 skipped\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got strings.Builder
			s := newSummary(&got)
			if err := s.read(strings.NewReader(tt.events)); err != nil {
				t.Fatal(err)
			}
			s.finish(tt.success)
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReasonEnds(t *testing.T) {
	long := strings.Repeat("x", 600) + "\n"
	want := "    a_test.go:7: first\n"
	got := reason([]string{want, long, long, "--- FAIL: TestA (0.00s)\n"})
	if want := strings.TrimSpace(want) + " " + strings.TrimSpace(long) + " ..."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
