// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/choose"
	"fairlead.io/fairlead/internal/dataplane/ipvs"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/observe"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// An agent of kind ipvs doesn't start in a kernel without IPVS, and its error names the module.
func TestKindIPVS(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the kernel's modules are those of a network namespace that root may read")
	}
	if loadedIPVS() {
		t.Skip("this kernel has IPVS")
	}
	conf := &config.Config{Dataplane: config.Dataplane{Kind: config.KindIPVS}}
	_, err := Open(conf, t.TempDir(), observe.NewRecorder(slog.New(slog.DiscardHandler)), slog.New(slog.DiscardHandler))
	if missing, is := errors.AsType[*ipvs.MissingError](err); !is || missing.Module != "ip_vs" {
		t.Errorf("error %v, want the missing module ip_vs", err)
	}
}

// An agent whose program gets packets leaves pinned links.
func TestAttachedXDP(t *testing.T) {
	for pin, want := range map[string]bool{
		"": false, "v9/flows": false, program.LinkPin("eth0"): true, "v9/" + program.LinkPin("eth0"): true,
	} {
		dir := t.TempDir()
		if pin != "" {
			path := filepath.Join(dir, pin)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if got := attachedXDP(dir); got != want {
			t.Errorf("with the pin %q: %t, want %t", pin, got, want)
		}
	}
}

// Without XDP the status names the data plane that is left, and why.
func TestDescribeWithoutXDP(t *testing.T) {
	option := func(kind string, err error) choose.Option {
		limits := dataplanetest.Limits()
		limits.Kind = kind
		return choose.Option{
			Limits: limits, Used: func() bool { return false },
			Open: func() (dataplane.DataPlane, error) {
				if err != nil {
					return nil, err
				}
				return dataplanetest.NewFake(), nil
			},
		}
	}
	plane, err := choose.Open(slog.New(slog.DiscardHandler), option("xdp", errors.New("no BPF")), option("ipvs", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer plane.Close()
	got := (&chosenPlane{Plane: plane, interfaces: []string{"eth0"}}).Describe()
	want := observe.DataPlane{Kind: "ipvs", Reason: "data plane xdp: no BPF", Attachments: []observe.Attachment{{Interface: "eth0", Mode: "stack"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
