// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

// TestScripts plays the archives of testdata in simulated time. An archive's
// comment is the script, its files are desired states and expected texts:
//
//	start                      start the reconciler
//	set FILE                   desire the services of FILE and wait for quiet
//	program FILE               program FILE's services behind the reconciler's back
//	fail OP NAME REASON…       fail calls of OP (update, delete, prune) for a service; "-" for prune
//	heal OP NAME               fail them no more
//	unusable BACKEND REASON…   make a backend unusable; no reason makes it usable
//	verdict NAME BACKEND WORD  a health check finds a backend dead, refusing, alive or, in slow start, N/16
//	drain NAME [BACKEND]       drain a service or one of its backends
//	undrain NAME [BACKEND]     and no longer
//	stale NAME                 announce that a service is outdated
//	wait DURATION              let time pass
//	calls, dump, status, log FILE   compare with FILE; calls and log since the last time
//
// A service is a line such as "web tcp 10.1.1.1:80 10.0.0.1*3 10.0.0.2": name,
// VIP, backends with weights. "web?50" has a health check with that panic
// threshold.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%d scripts, error %v", len(scripts), err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			withReconciler(t, func(_ *testing.T, r *testReconciler) {
				s := &script{testReconciler: r, files: map[string]string{}, vips: map[string]lb.VIP{"-": {}}}
				for _, f := range archive.Files {
					s.files[f.Name] = string(f.Data)
				}
				for i, line := range strings.Split(string(archive.Comment), "\n") {
					if fields := strings.Fields(line); len(fields) > 0 && !strings.HasPrefix(line, "#") {
						s.run(fmt.Sprintf("%s:%d: %s", path, i+1, line), fields[0], fields[1:])
					}
				}
			})
		})
	}
}

// script is one archive as it is played.
type script struct {
	*testReconciler
	files map[string]string
	vips  map[string]lb.VIP
}

// run plays one line; at says where it stands.
func (s *script) run(at, command string, args []string) {
	arg := func(i int) string {
		if i >= len(args) {
			s.t.Fatalf("%s: argument %d is missing", at, i+1)
		}
		return args[i]
	}
	switch command {
	case "start":
		s.start()
	case "set":
		s.set(s.services(at, arg(0)))
	case "program":
		for _, svc := range s.services(at, arg(0)) {
			if _, err := s.dp.Update(s.t.Context(), &svc); err != nil {
				s.t.Fatalf("%s: %v", at, err)
			}
		}
		s.dp.Calls()
	case "fail":
		s.fail(arg(0), s.vip(at, arg(1)), errors.New(strings.Join(args[2:], " ")))
	case "heal":
		s.fail(arg(0), s.vip(at, arg(1)), nil)
	case "unusable":
		s.dp.SetUnusable(netip.MustParseAddrPort(arg(0)), strings.Join(args[1:], " "))
	case "verdict":
		s.judge(at, arg(0), netip.MustParseAddrPort(arg(1)), arg(2))
	case "drain":
		s.store.Drain(store.Drain{Target: drainTarget(args)})
		synctest.Wait()
	case "undrain":
		s.store.Undrain(drainTarget(args))
		synctest.Wait()
	case "stale":
		s.dp.MarkStale(s.vip(at, arg(0)))
		synctest.Wait()
	case "wait":
		duration, err := time.ParseDuration(arg(0))
		if err != nil {
			s.t.Fatalf("%s: %v", at, err)
		}
		time.Sleep(duration)
		synctest.Wait()
	default:
		s.compare(at, command, arg(0))
	}
}

// judge hands the store a verdict.
func (s *script) judge(at, name string, backend lb.BackendID, word string) {
	dead := word == "dead"
	state := health.State{Checked: true, Known: true, Healthy: !dead && word != "refusing", Silent: dead, Share: 16}
	if share, of, ramping := strings.Cut(word, "/"); ramping && of == "16" {
		var err error
		if state.Share, err = strconv.Atoi(share); err != nil {
			s.t.Fatalf("%s: %v", at, err)
		}
	}
	s.store.ApplyVerdicts([]health.Verdict{{VIP: s.vip(at, name), Backend: backend, State: state}})
	synctest.Wait()
}

func drainTarget(args []string) store.Target {
	target := store.Target{Service: args[0]}
	if len(args) > 1 {
		target.Backend = netip.MustParseAddrPort(args[1])
	}
	return target
}

// compare checks a text against a file, where blank lines have no meaning.
func (s *script) compare(at, what, file string) {
	var got string
	switch what {
	case "calls":
		got = strings.Join(s.dp.Calls(), "\n")
	case "dump":
		got = s.dp.Dump()
	case "status":
		got = s.status()
	case "log":
		got = s.log.Take()
	default:
		s.t.Fatalf("%s: unknown command", at)
	}
	want, exists := s.files[file]
	if !exists {
		s.t.Fatalf("%s: no such file", at)
	}
	if got = strings.TrimSpace(got); got != strings.TrimSpace(want) {
		s.t.Errorf("%s: got\n%s\nwant\n%s", at, got, want)
	}
}

// status prints each service's status on a line, without times and counts of
// attempts, which chance moves.
func (s *script) status() string {
	var out strings.Builder
	for _, st := range s.store.Snapshot().Statuses() {
		entry, _ := s.store.Snapshot().Find(st.VIP)
		fmt.Fprintf(&out, "%s %s desired %d programmed %d", st.Name, st.VIP, entry.Revision, st.Programmed)
		if st.State.Backends != nil {
			fmt.Fprintf(&out, " in use %d/%d", st.State.InUse(), len(st.State.Backends))
		}
		if st.Deleting {
			out.WriteString(" deleting")
		}
		if st.Error != "" {
			out.WriteString(" error: " + st.Error)
		}
		out.WriteString("\n")
	}
	return out.String()
}

func (s *script) vip(at, name string) lb.VIP {
	vip, known := s.vips[name]
	if !known {
		s.t.Fatalf("%s: no service %q yet", at, name)
	}
	return vip
}

// services reads a file of services and remembers their names.
func (s *script) services(at, file string) []lb.Service {
	text, exists := s.files[file]
	if !exists {
		s.t.Fatalf("%s: no such file", at)
	}
	var all []lb.Service
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		address := netip.MustParseAddrPort(fields[2])
		svc := lb.Service{Name: fields[0], Forward: lb.L2DSR, MinHealthy: 1}
		if name, percent, checked := strings.Cut(fields[0], "?"); checked {
			threshold, err := strconv.Atoi(percent)
			if err != nil {
				s.t.Fatalf("%s: %s: panic threshold %q: %v", at, file, percent, err)
			}
			svc.Name, svc.Health = name, &lb.HealthCheck{Type: lb.HealthTCP, PanicThreshold: threshold}
		}
		svc.VIP = lb.VIP{Address: address.Addr(), Port: address.Port()}
		if err := svc.Protocol.UnmarshalText([]byte(fields[1])); err != nil {
			s.t.Fatalf("%s: %s: %v", at, file, err)
		}
		for _, field := range fields[3:] {
			backend, weight, _ := strings.Cut(field+"*1", "*")
			w, err := strconv.Atoi(strings.TrimSuffix(weight, "*1"))
			if err != nil {
				s.t.Fatalf("%s: %s: backend %q: %v", at, file, field, err)
			}
			svc.Backends = append(svc.Backends, lb.Backend{Address: netip.MustParseAddr(backend), Port: svc.Port, Weight: w})
		}
		s.vips[svc.Name] = svc.VIP
		all = append(all, svc)
	}
	return all
}
