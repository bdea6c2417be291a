// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"embed"
	"strings"
	"text/template"

	"fairlead.io/fairlead/internal/bgp"
)

//go:embed files
var files embed.FS

// templates are the configuration files of hosts' programs, and nftables rules.
var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"add":          func(a, b int) int { return a + b },
	"list":         func(all ...string) []string { return all },
	"hold":         func() int { return int(holdTime.Seconds()) },
	"keepalive":    func() int { return int(holdTime.Seconds()) / 3 },
	"restart":      bgp.DefaultRestartTime.String,
	"bfd":          bfdInterval.Milliseconds,
	"maxPaths":     func() int { return maxPaths },
	"maxPrefixes":  func() int { return maxPrefixes },
	"password":     func() string { return password },
	"passwordFile": func() string { return passwordFile },
}).ParseFS(files, "files/*"))

// render executes a template with data of the type that it is written for.
func render(name string, data any) string {
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // never: all fields that it names exist
	}
	return b.String()
}
