// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"io"
	"time"
)

// Kubernetes is how an agent follows the API server of its cluster.
type Kubernetes struct {
	// Server is the API server's URL.
	Server string `json:"server"`
	// Reachable says that it answered last, Since when that became so or ceased to be,
	// and Heard when it said something last. Error is why it can't be reached.
	Reachable bool      `json:"reachable"`
	Since     time.Time `json:"since"`
	Heard     time.Time `json:"heard,omitzero"`
	Error     string    `json:"error,omitempty"`
	// Synced is when all objects had been read for the first time; zero before.
	Synced time.Time `json:"synced,omitzero"`
	// Restored is when what is served was saved, while nothing newer is known; zero
	// otherwise.
	Restored time.Time `json:"restored,omitzero"`
	// Objects counts the Services and LoadBalancers for this node.
	Objects int `json:"objects"`
	// Problems keep objects, or parts of them, from being served as they are written.
	Problems []Problem `json:"problems"`
}

// Problem is something that is wrong with an object.
type Problem struct {
	// Object is for example "Service default/web".
	Object string `json:"object"`
	Text   string `json:"text"`
}

// write adds lines to the table of a status.
func (k *Kubernetes) write(t io.Writer, now time.Time) {
	if k == nil {
		return
	}
	reached := "reached for " + age(k.Since, now).String()
	if !k.Reachable {
		reached = "not reached for " + age(k.Since, now).String()
	}
	fmt.Fprintf(t, "kubernetes\t%s, %s\n", k.Server, reached)
	if k.Error != "" {
		fmt.Fprintf(t, "\t%s\n", oneLine(k.Error))
	}
	switch {
	case !k.Restored.IsZero():
		fmt.Fprintf(t, "\tserves what was known %s ago\n", age(k.Restored, now))
	case k.Synced.IsZero():
		fmt.Fprint(t, "\tobjects not read yet\n")
	default:
		problems := ""
		if n := len(k.Problems); n > 0 {
			problems = ", " + counted(n, "problem", "problems")
		}
		fmt.Fprintf(t, "\t%s, read %s ago%s\n", counted(k.Objects, "object", "objects"), age(k.Synced, now), problems)
	}
	for _, p := range k.Problems {
		fmt.Fprintf(t, "\t%s: %s\n", p.Object, p.Text)
	}
}
