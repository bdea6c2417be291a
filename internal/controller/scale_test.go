// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
)

// BenchmarkServices has the command itself give addresses and groups to 2,000
// Services: from the first one's creation, from nothing with all of them there, and
// what memory it has then.
func BenchmarkServices(b *testing.B) {
	const count = 2000
	w := newWorld(b)
	w.pool("main", "10.1.0.0/16")
	w.group("g", 3)
	for i := range 3 {
		w.node(fmt.Sprintf("n%d", i), map[string]string{"lb": "g"})
	}
	program := filepath.Join(b.TempDir(), "fairlead")
	if text, err := exec.Command("go", "build", "-o", program, "../../cmd/fairlead").CombinedOutput(); err != nil {
		b.Fatalf("%s: %v", text, err)
	}
	c := w.command(program)
	w.hasSome(w.service("first"))
	b.ResetTimer()
	began := time.Now()
	var group errgroup.Group
	group.SetLimit(8)
	for i := range count - 1 {
		group.Go(func() error { return w.Create(w.Context(), newService(fmt.Sprintf("s%d", i))) })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(time.Since(began).Seconds(), "s/created")
	w.served(count)
	b.ReportMetric(time.Since(began).Seconds(), "s/served")
	b.ReportMetric(c.rss(), "MB/RSS")
	c.stop()
	began = time.Now()
	c = w.command(program)
	w.hasSome(w.service("last"))
	b.ReportMetric(time.Since(began).Seconds(), "s/restart")
	b.ReportMetric(c.rss(), "MB/RSS-restarted")
}

// served waits until so many Services have an address and a group.
func (w *world) served(count int) {
	w.Helper()
	var all corev1.ServiceList
	for deadline := time.Now().Add(10 * patience); ; {
		if err := w.List(w.Context(), &all, client.InNamespace("default")); err != nil {
			w.Fatal(err)
		}
		served := 0
		for i := range all.Items {
			if len(all.Items[i].Status.LoadBalancer.Ingress) > 0 && all.Items[i].Annotations[v1alpha1.AnnotationGroup] != "" {
				served++
			}
		}
		if served == count {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%d of %d Services are served", served, count)
		}
	}
}

// process is a controller as a process of its own.
type process struct {
	w *world
	*exec.Cmd
	said bytes.Buffer
}

func (w *world) command(program string) *process {
	w.Helper()
	p := &process{w: w}
	p.Cmd = exec.CommandContext(context.WithoutCancel(w.Context()), program, "controller", "--namespace", home,
		"--kubeconfig", w.api.Kubeconfig(w, w.config), "--metrics-address", "127.0.0.1:0", "--health-address", "127.0.0.1:0")
	p.Stderr = &p.said
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(p.stop)
	return p
}

func (p *process) stop() {
	if p.ProcessState != nil {
		return
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		p.w.Error(err)
	}
	if err := p.Wait(); err != nil {
		p.w.Errorf("controller: %v\n%s", err, p.said.String())
	}
}

// rss is the process's resident memory in 10^6 bytes.
func (p *process) rss() float64 {
	p.w.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.Process.Pid))
	if err != nil {
		p.w.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		p.w.Fatal(err)
	}
	return float64(resident*os.Getpagesize()) / 1e6
}
