// SPDX-License-Identifier: Apache-2.0

package source

import (
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
)

// State is the state of the connection to an API server and of the objects that are followed.
type State struct {
	// Server is the URL of the API server.
	Server string `json:"server"`
	// Reachable says whether the last request succeeded, Since when that last changed, and
	// LastResponse when the server last responded. Error is why it is unreachable.
	Reachable    bool      `json:"reachable"`
	Since        time.Time `json:"since"`
	LastResponse time.Time `json:"lastResponse,omitzero"`
	Error        string    `json:"error,omitempty"`
	// Synced is when all objects had been read for the first time; zero before.
	Synced time.Time `json:"synced,omitzero"`
	// Restored is when the served state was saved, if it is a restored one; zero otherwise.
	Restored time.Time `json:"restored,omitzero"`
	// Objects is the number of objects for this node.
	Objects int `json:"objects"`
	// Problems are errors of objects, which are not or only partly served because of them, and kinds
	// that the API server doesn't allow to list.
	Problems []v1alpha1.NodeProblem `json:"problems,omitempty"`
}

// Responded records a response of the API server, and reports whether it was unreachable before.
func (s *State) Responded(now time.Time) bool {
	s.LastResponse = now
	if s.Reachable {
		return false
	}
	s.Reachable, s.Since, s.Error = true, now, ""
	return true
}

// Failed records why the API server is unreachable, and reports whether that is new.
func (s *State) Failed(now time.Time, err string) bool {
	if s.Error == err {
		return false
	}
	if s.Reachable || s.Error == "" {
		s.Since = now
	}
	s.Reachable, s.Error = false, err
	return true
}

// File is the state of a configuration file.
type File struct {
	// Path is absolute.
	Path string `json:"path"`
	// Digest is the SHA-256 of the running configuration's bytes in hexadecimal, Loaded
	// when it was read.
	Digest string    `json:"digest"`
	Loaded time.Time `json:"loaded"`
	// Error is the reason for refusing the current file, and Refused the time; both are
	// zero if the file is the running configuration.
	Error   string    `json:"error,omitempty"`
	Refused time.Time `json:"refused,omitzero"`
}
