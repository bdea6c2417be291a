// SPDX-License-Identifier: Apache-2.0

// Package helm has the definitions of Fairlead's kinds, as the chart installs them. The API server
// validates by them without a cluster.
package helm

import "embed"

//go:embed fairlead/crds/*.yaml
var definitions embed.FS

// Definition returns the CustomResourceDefinition of a kind, in YAML, by the kind's plural name in
// lower case, such as "loadbalancers". The error is fs.ErrNotExist if there is no such kind.
func Definition(resource string) ([]byte, error) {
	return definitions.ReadFile("fairlead/crds/fairlead.io_" + resource + ".yaml")
}
