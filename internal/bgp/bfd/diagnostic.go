// SPDX-License-Identifier: Apache-2.0

package bfd

import "fmt"

// Diagnostic says why a session last went down (RFC 5880 §4.1).
type Diagnostic uint8

// The diagnostics that are used or looked at here.
const (
	NoDiagnostic          Diagnostic = 0
	DetectionTimeExpired  Diagnostic = 1
	NeighbourSignaledDown Diagnostic = 3
	AdministrativelyDown  Diagnostic = 7
)

// diagnostics are the words of RFC 5880 §4.1 and RFC 9384's registry.
var diagnostics = [...]string{
	"no diagnostic", "control detection time expired", "echo function failed", "neighbour signaled session down",
	"forwarding plane reset", "path down", "concatenated path down", "administratively down",
	"reverse concatenated path down", "mis-connectivity defect",
}

// String is the registry's name of the diagnostic.
func (d Diagnostic) String() string {
	if int(d) < len(diagnostics) {
		return diagnostics[d]
	}
	return fmt.Sprintf("diagnostic %d", uint8(d))
}
