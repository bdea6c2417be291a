// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the pictures of docs/figures from the reports")

// The pictures show the committed reports, and are well-formed.
func TestPictures(t *testing.T) {
	pictures, err := Pictures(committed)
	if err != nil {
		t.Fatal(err)
	}
	if len(pictures) != 3 {
		t.Errorf("%d pictures, want 3", len(pictures))
	}
	for name, picture := range pictures {
		path := filepath.Join(root, "docs", "figures", name)
		if *update {
			if err := os.WriteFile(path, []byte(picture), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != picture {
			t.Errorf("%s differs from the reports (%v): go test ./lab/bench/page -run TestPictures -update", name, err)
		}
		decoder := xml.NewDecoder(strings.NewReader(picture))
		for err = nil; err == nil; {
			_, err = decoder.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
