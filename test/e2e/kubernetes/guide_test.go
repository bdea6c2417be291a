// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/cluster"
	"fairlead.io/fairlead/test/guide"
)

const (
	guidePath = "docs/guides/kubernetes.md"
	// webImage is the image of the guide's Deployment, as nodes call it.
	webImage = "docker.io/library/nginx:1.29"
)

// TestGuide plays docs/guides/kubernetes.md, word for word: its files are written, its
// commands are run, and they have to print what the guide shows.
//
// The guide's environment is test/cluster: nodes n1 to n3 at 172.30.0.11 to .13, and
// a router at 172.30.0.254. The differences: the client is also the workstation, ssh
// is a way into a namespace, the router's system has no service manager, and
// third-party images are loaded already.
func TestGuide(t *testing.T) {
	t.Parallel()
	blocks := guide.Blocks(t, root+"/"+guidePath)
	s := newStage(t)
	for _, b := range blocks {
		t.Logf("%s: %s %s", b, b.Language, b.Target)
		if err := s.play(t, b); err != nil {
			t.Fatalf("%s: %v\n%s", b, err, b.Text)
		}
	}
	// The guide ends with the uninstallation.
	for _, n := range s.Nodes() {
		cluster.Await(t, "nothing to be left on "+n.Name(), func() error { return remains(t, n) })
	}
}

// play follows a block as a reader would.
func (s *stage) play(t *testing.T, b guide.Block) error {
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	switch b.Language + " " + b.Target {
	case "sh workstation", "sh client":
		return s.run(ctx, t, s.Client, b)
	case "sh router":
		return s.run(ctx, t, s.Router, b)
	case "sysctl router":
		return s.feed(ctx, "sysctl -q -p", b)
	case "frr router":
		return s.feed(ctx, "vtysh -f", b)
	}
	if filepath.Ext(b.Target) == ".yaml" {
		return os.WriteFile(filepath.Join(s.clone, b.Target), []byte(b.Text), 0o600)
	}
	switch {
	case b.Language == "yaml" && b.Target == "":
		return s.examine(ctx, b)
	case b.Target != "":
		return fmt.Errorf("unknown target %q", b.Target)
	}
	return nil
}

// examine has the API server say whether it would take an example.
func (s *stage) examine(ctx context.Context, b guide.Block) error {
	out, err := s.shell(ctx, s.Client, "kubectl apply --dry-run=server -f - <<'.'\n"+b.Text+".\n")
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return err
}

// run repeats a script until its output is the guide's.
func (s *stage) run(ctx context.Context, t *testing.T, on *cluster.Machine, b guide.Block) error {
	if b.Shown == "" {
		out, err := s.shell(ctx, on, b.Text)
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return err
	}
	cluster.Await(t, b.String(), func() error {
		once, cancel := context.WithTimeout(t.Context(), await.Patience/4) // a try that hangs isn't the last
		defer cancel()
		out, err := s.shell(once, on, b.Text)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return guide.Compare(b.Shown, out)
	})
	return nil
}

// feed has a command of the router read a file that has the block's text.
func (s *stage) feed(ctx context.Context, command string, b guide.Block) error {
	path := filepath.Join(s.clone, "router.conf")
	if err := os.WriteFile(path, []byte(b.Text), 0o644); err != nil {
		return err
	}
	out, err := s.shell(ctx, s.Router, command+" "+path)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return err
}
