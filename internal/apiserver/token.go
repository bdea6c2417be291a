// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"k8s.io/apimachinery/pkg/util/validation"
)

// allProjects is the name of all projects in credentials.
const allProjects = "*"

// identity is the client of a request, with its permissions.
type identity struct {
	// name is for logs: "token octavia" or "certificate octavia".
	name string
	// projects are names, or allProjects.
	projects []string
	readOnly bool
	// nodes are the nodes that the client reports for. It may make the requests of nodes and no others;
	// there are none for other clients.
	nodes []string
}

// may reports whether a client may see a project.
func (i identity) may(project string) bool {
	return validProject(project) && (slices.Contains(i.projects, project) || slices.Contains(i.projects, allProjects))
}

// validProject reports whether a name is valid for a project: a label of DNS, so that it can be a
// part of the name of a namespace and of a path.
func validProject(name string) bool { return len(validation.IsDNS1123Label(name)) == 0 }

// Token is an entry of a file of tokens. The file has no token, but a hash of each: tokens are
// random and long (256 bits), so that one round of SHA-256 can't be reversed by trying, and costs
// little when strangers try.
type Token struct {
	// ID is the first part of the token, up to the point; it is in logs.
	ID string
	// Hash is "sha256:" and the hexadecimal SHA-256 of the token.
	Hash string
	// Projects are the projects of the token; "*" for all. There are none if there are Nodes: the
	// token is for agents that follow this server and report for these nodes.
	Projects, Nodes []string
	// ReadOnly allows GET requests only.
	ReadOnly bool
	// Expires is when the token becomes invalid; zero for never.
	Expires time.Time

	hash [sha256.Size]byte
}

const (
	hashPrefix   = "sha256:"
	secretLength = 32
)

// NewToken completes an entry with the hash of a new random token, which it returns: bearer tokens
// are "ID.SECRET".
func NewToken(t Token) (token string, entry Token, err error) {
	secret := make([]byte, secretLength)
	if _, err := rand.Read(secret); err != nil {
		return "", t, err
	}
	token = t.ID + "." + base64.RawURLEncoding.EncodeToString(secret)
	hash := sha256.Sum256([]byte(token))
	t.Hash = hashPrefix + hex.EncodeToString(hash[:])
	return token, t, t.check()
}

// Line returns the entry as a line of a file of tokens.
func (t *Token) Line() string {
	text := fmt.Sprintf("- {id: %q, hash: %q", t.ID, t.Hash) // quoted: 007 would be a number
	if len(t.Nodes) > 0 {
		text += fmt.Sprintf(", nodes: [%s]", quoted(t.Nodes))
	} else {
		text += fmt.Sprintf(", projects: [%s]", quoted(t.Projects))
	}
	if t.ReadOnly {
		text += ", readOnly: true"
	}
	if !t.Expires.IsZero() {
		text += ", expires: " + t.Expires.UTC().Format(time.RFC3339)
	}
	return text + "}\n"
}

func quoted(names []string) string {
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(texts, ", ")
}

// check returns the error of an invalid field, and decodes the hash.
func (t *Token) check() error {
	text, known := strings.CutPrefix(t.Hash, hashPrefix)
	hash, err := hex.DecodeString(text)
	switch {
	case !label.MatchString(t.ID):
		return errors.New("id: want up to 63 of a-z, 0-9 and -, no - at the ends")
	case !known || err != nil || len(hash) != sha256.Size:
		return fmt.Errorf("hash: want %s and %d hexadecimal digits", hashPrefix, 2*sha256.Size)
	case len(t.Nodes) > 0 && (len(t.Projects) > 0 || t.ReadOnly):
		return errors.New("nodes: not with projects or readOnly")
	case len(t.Nodes)+len(t.Projects) == 0:
		return errors.New(`projects: none; want names, or "*" for all`)
	}
	for i, p := range t.Projects {
		if p != allProjects && !validProject(p) {
			return fmt.Errorf(`projects[%d]: %q can't be the name of a project: want up to 63 of a-z, 0-9 and -, no - at the ends, or "*"`, i, p)
		}
	}
	for i, n := range t.Nodes {
		if !validSubdomain(n) {
			return fmt.Errorf("nodes[%d]: %q can't be the name of a node: want up to 253 of a-z, 0-9, - and ., no - or . at the ends", i, n)
		}
	}
	t.hash = [sha256.Size]byte(hash)
	return nil
}

// tokens are the tokens of a file, by ID.
type tokens map[string]*Token

// parseTokens reads a file of tokens: a list in YAML. Errors name the entry and its field, and have
// nothing of the file's text.
func parseTokens(text []byte) (tokens, error) {
	if strings.TrimSpace(string(text)) == "" {
		return nil, errors.New("empty; want a list of tokens, [] for none")
	}
	var entries []*struct {
		ID, Hash string
		Projects []string
		Nodes    []string
		ReadOnly bool `yaml:"readOnly"`
		Expires  string
	}
	if err := yaml.UnmarshalWithOptions(text, &entries, yaml.Strict()); err != nil {
		return nil, errors.New(yaml.FormatError(err, false, false))
	}
	all := tokens{}
	for i, e := range entries {
		if e == nil {
			return nil, fmt.Errorf("[%d]: empty", i)
		}
		t := &Token{ID: e.ID, Hash: e.Hash, Projects: e.Projects, Nodes: e.Nodes, ReadOnly: e.ReadOnly}
		if e.Expires != "" {
			var err error
			if t.Expires, err = time.Parse(time.RFC3339, e.Expires); err != nil {
				return nil, fmt.Errorf("[%d].expires: want a time such as 2027-01-31T00:00:00Z", i)
			}
		}
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("[%d].%w", i, err)
		}
		if all[t.ID] != nil {
			return nil, fmt.Errorf("[%d].id: %s is there twice", i, t.ID)
		}
		all[t.ID] = t
	}
	return all, nil
}

// identify returns the identity of a token. The time it takes doesn't depend on the secret.
func (all tokens) identify(token string, now time.Time) (identity, bool) {
	id, _, _ := strings.Cut(token, ".")
	t := all[id]
	if t == nil {
		t = &Token{Expires: now} // no token has the zero hash
	}
	hash := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(hash[:], t.hash[:]) != 1 || !t.Expires.IsZero() && !now.Before(t.Expires) {
		return identity{}, false
	}
	return identity{name: "token " + t.ID, projects: t.Projects, readOnly: t.ReadOnly, nodes: t.Nodes}, true
}
