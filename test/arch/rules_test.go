// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
)

// A type with more methods, or a folder with more code files, has more than one
// purpose.
const (
	maxMethods = 30
	maxFiles   = 40
)

// rules are all checks of the tree; each returns its violations.
var rules = []func(tree) []string{
	checkFloors, checkProduct, checkForbidden, checkImports, checkCommands, checkObserve, checkMethods, checkFolders,
}

// within says whether path is folder or lies below it.
func within(path string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return path == f || strings.HasPrefix(path, f+"/") })
}

// checkProduct: the product imports neither the laboratory nor tests.
func checkProduct(t tree) []string {
	var found []string
	for _, f := range t.files {
		if !within(f.path, "internal", "cmd/fairlead", "api", "bpf") {
			continue
		}
		for _, imported := range f.imports {
			if within(imported, "lab", "test", "cmd/fairlab", "bpf/lab") {
				found = append(found, fmt.Sprintf("product: %s imports %s", f.folder(), imported))
			}
		}
	}
	return found
}

// forbidden are imports that floors allow, each of a folder.
var forbidden = [][2]string{
	{"internal/spec", "internal/source"},              // translates for each source
	{"internal/controller", "internal/observe/web"},   // shows no agent
	{"internal/dataplane", "internal/host/preflight"}, // checks hosts for them
}

// checkForbidden: no folder has a forbidden import.
func checkForbidden(t tree) []string {
	var found []string
	for _, f := range t.files {
		for _, pair := range forbidden {
			for _, imported := range f.imports {
				if within(f.path, pair[0]) && within(imported, pair[1]) {
					found = append(found, fmt.Sprintf("forbidden: %s imports %s", f.folder(), imported))
				}
			}
		}
	}
	return found
}

// maxImports bounds how many packages of this module the agent imports, which has the other parts
// as interfaces.
const maxImports = 20

// checkImports: the agent imports at most maxImports packages of this module.
func checkImports(t tree) []string {
	imports := map[string]bool{}
	for _, f := range t.files {
		for _, imported := range f.imports {
			if f.folder() == "internal/agent" && within(imported, "api", "internal") {
				imports[imported] = true
			}
		}
	}
	return tooMany(map[string]int{"internal/agent": len(imports)}, maxImports, "imports: %s has more than %d packages of this module")
}

// commandImports are the imports that commands may have, apart from the standard library.
var commandImports = map[string][]string{
	"cmd/internal/cli": {"github.com/spf13/cobra", "sigs.k8s.io/yaml"},
	"cmd/fairlead": {
		"cmd/internal/cli",
		"internal/apiserver", "internal/balancer", "internal/config", "internal/control", "internal/controller", "internal/frame",
		"internal/host", "internal/kubectl", "internal/lb", "internal/observe", "internal/source/node", "internal/tunnel", "internal/version", "internal/reflector",
		"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/sys", "golang.org/x/term",
	},
	"cmd/fairlab": {
		"cmd/internal/cli", "internal/lb", "internal/version", "lab", "github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/client-go/tools/clientcmd",
	},
}

// checkCommands: commands parse flags and print. They have no goroutine, no lock and
// few imports, so their logic can be tested without them.
func checkCommands(t tree) []string {
	var found []string
	for _, f := range t.files {
		if !within(f.path, "cmd") || f.syntax == nil {
			continue
		}
		for _, imported := range f.imports {
			switch {
			case within(imported, "sync"):
				found = append(found, fmt.Sprintf("commands: %s imports %s: commands share no state", f.folder(), imported))
			case standard(imported) || within(imported, commandImports[f.folder()]...):
			default:
				found = append(found, fmt.Sprintf("commands: %s imports %s", f.folder(), imported))
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				found = append(found, fmt.Sprintf("commands: %s starts a goroutine", f.path))
			}
			return true
		})
	}
	return found
}

// standard says whether a path is one of the standard library: its first element
// has no dot, and this module's folders are known.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".") && !slices.Contains([]string{"api", "bpf", "cmd", "deploy", "internal", "lab", "test"}, first)
}

var (
	// observeImports are the packages of this module that internal/observe may
	// import.
	observeImports = []string{
		"internal/bgp", "internal/dataplane", "internal/health", "internal/httpd", "internal/lb",
		"internal/observe", "internal/reconcile", "internal/routehook", "internal/source", "internal/store", "internal/table", "internal/version", "internal/wait",
	}
	// mutable are the types through which state changes, by package.
	mutable = map[string][]string{
		"internal/store":     {"Store", "New"},
		"internal/dataplane": {"DataPlane"},
		"internal/reconcile": {"Reconciler", "New"},
		"internal/health":    {"Monitor", "New"},
		"internal/routehook": {"Hook", "Open"},
	}
	// verbs are the methods that change state. Set is one too, where it is declared;
	// a call of it sets an HTTP header.
	verbs = []string{"Delete", "Drain", "ApplyVerdicts", "Prune", "Reload", "Undrain", "Update"}
)

// checkObserve: internal/observe reads. It names no type that changes state, and
// declares and calls no function that is called like a change.
func checkObserve(t tree) []string {
	var found []string
	for _, f := range t.files {
		if !within(f.path, "internal/observe") {
			continue
		}
		names := map[string]string{} // an imported package's path, by its name in this file
		for i, imported := range f.imports {
			name := path.Base(imported)
			if alias := f.syntax.Imports[i].Name; alias != nil {
				name = alias.Name
			}
			names[name] = imported
			if within(imported, "internal") && !readable(imported) {
				found = append(found, fmt.Sprintf("observe: %s imports %s", f.folder(), imported))
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if what := change(n, names); what != "" {
				found = append(found, fmt.Sprintf("observe: %s %s", f.folder(), what))
			}
			return true
		})
	}
	return found
}

// readable says whether internal/observe may import a package. Only its own parts may
// lie below one.
func readable(imported string) bool {
	return within(imported, "internal/observe") || slices.Contains(observeImports, imported)
}

// change describes a node that changes state, or gives the means to.
func change(n ast.Node, names map[string]string) string {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && slices.Contains(mutable[names[x.Name]], n.Sel.Name) {
			return fmt.Sprintf("uses %s.%s", x.Name, n.Sel.Name)
		}
	case *ast.CallExpr:
		s, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(verbs, s.Sel.Name) {
			return ""
		}
		if x, ok := s.X.(*ast.Ident); ok && names[x.Name] != "" {
			return "" // a package's function, like slices.Delete
		}
		return "calls " + s.Sel.Name
	case *ast.Field:
		if _, ok := n.Type.(*ast.FuncType); !ok {
			return ""
		}
		for _, name := range n.Names {
			if name.Name == "Set" || slices.Contains(verbs, name.Name) {
				return "declares " + name.Name
			}
		}
	}
	return ""
}

// checkMethods: a type has at most maxMethods methods.
func checkMethods(t tree) []string {
	count := map[string]int{}
	for _, f := range t.files {
		if f.syntax == nil {
			continue
		}
		for _, d := range f.syntax.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Recv != nil {
				count[f.folder()+"."+receiver(d.Recv.List[0].Type)]++
			}
		}
	}
	return tooMany(count, maxMethods, "methods: %s has more than %d methods")
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// checkFolders: a folder has at most maxFiles code files.
func checkFolders(t tree) []string {
	count := map[string]int{}
	for _, f := range t.files {
		count[f.folder()]++
	}
	return tooMany(count, maxFiles, "folders: %s has more than %d code files")
}

func tooMany[K cmp.Ordered](count map[K]int, most int, format string) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		if count[name] > most {
			found = append(found, fmt.Sprintf(format, name, most))
		}
	}
	return found
}
