// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"log/slog"
	"testing"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/lb"
)

// A service that needs what the running program of an earlier agent lacks is not
// seen by that program: it is replaced first, and only then.
func TestInheritedProgramIsReplacedInTime(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() error {
		cfg := Config{PinDir: pins, Interfaces: []string{"fl0"}, Mode: program.Auto, Log: slog.New(slog.DiscardHandler)}
		direct, tunnelled := manyBackends(vip4, 2), manyBackends(vip6, 2)
		tunnelled.Forward = lb.IPIP
		p, err := Open(cfg)
		if err != nil {
			return err
		}
		if _, err := p.Update(context.Background(), direct); err != nil {
			return err
		}
		if err := p.Attach(); err != nil {
			return err
		}
		if err := p.Close(); err != nil {
			return err
		}
		first := attachedProgram(t, "fl0")

		if p, err = Open(cfg); err != nil {
			return err
		}
		if _, err := p.Update(context.Background(), direct); err != nil {
			return err
		}
		if id := attachedProgram(t, "fl0"); id != first {
			t.Error("the program was replaced although it has all that is needed")
		}
		if _, err := p.Update(context.Background(), tunnelled); err != nil {
			return err
		}
		if id := attachedProgram(t, "fl0"); id == first || p.programs.Features&program.FeatureIPIP == 0 {
			t.Errorf("program %d with %s runs, want another one than %d with ipip", id, p.programs.Features, first)
		}
		if err := p.Attach(); err != nil {
			return err
		}
		if n := len(p.Attachments()); n != 1 || !p.Attachments()[0].Adopted {
			t.Errorf("attachments %+v, want one, adopted", p.Attachments())
		}
		if want := program.FeatureL2DSR | program.FeatureIPIP; p.programs.Features != want {
			t.Errorf("program has %s, want %s", p.programs.Features, want)
		}
		return p.Close()
	})
}
