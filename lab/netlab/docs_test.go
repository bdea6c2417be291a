// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/golden"
)

// shown is a router's file in the documentation: the kind of router, its file's
// name and its text.
var shown = regexp.MustCompile("(?s)(<!-- the lab's: (\\w+) ([\\w.]+) -->\n```\n)(.*?)(```)")

// The documentation's files, which operators copy, are the labs' routers' own, so
// they are known to work.
func TestDocumentedRouters(t *testing.T) {
	for name, reflector := range map[string]bool{"routers.md": false, "reflector.md": true} {
		t.Run(name, func(t *testing.T) { checkDocumented(t, filepath.Join("..", "..", "docs", "guides", name), reflector) })
	}
}

func checkDocumented(t *testing.T, path string, reflector bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	current := shown.ReplaceAllStringFunc(string(text), func(block string) string {
		blocks++
		part := shown.FindStringSubmatch(block)
		return part[1] + routerFile(t, RouterKind(part[2]), part[3], reflector) + part[5]
	})
	golden.File(t, path, current)
	if blocks < 2 {
		t.Errorf("%d configurations of routers in %s", blocks, path)
	}
}

// routerFile is a file of the router in front of two balancers, or of the
// reflector that they announce to.
func routerFile(t *testing.T, kind RouterKind, name string, reflector bool) string {
	t.Helper()
	topology := drawn(t, ECMP, ECMPOptions{Forward: lb.L2DSR, Balancers: 2, Servers: 1, Router: kind, Reflector: reflector})
	file, there := topology.Host("router").Files[name]
	if !there {
		t.Fatalf("%s has no file %s", kind, name)
	}
	return strings.TrimSuffix(file, "\n") + "\n"
}
