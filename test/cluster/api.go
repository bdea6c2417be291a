// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// API is an API server with its etcd, and further components of the control plane
// that a test requests. RBAC is on.
type API struct {
	machine *Machine
	// binary is Kubernetes, dir has all files of the control plane.
	binary, dir string
	endpoint    netip.AddrPort
	// etcd is where etcd serves the API server.
	etcd      netip.AddrPort
	authority *authority
	admin     *rest.Config
	clients   *kubernetes.Clientset
	// dial connects to the API server's machine; nil if every machine can.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// components are the processes by name.
	components map[string]*process
	// flags are added to the usual ones of the API server.
	flags []string
}

// StartAPI starts an API server at a loopback address of its own; it ends with the test.
// Without a controller manager objects don't change by themselves, and pods need no
// service account. Flags are passed to the API server. Tests that use it are called TestAPIServer…,
// by which scripts/test.sh finds them.
func StartAPI(t testing.TB, flags ...string) *API {
	t.Helper()
	if strings.HasPrefix(t.Name(), "Test") && !strings.HasPrefix(t.Name(), "TestAPIServer") {
		t.Fatalf("%s starts an API server: its name has to begin with TestAPIServer", t.Name())
	}
	needRoot(t)
	a, err := bootAPI(newPlace(t), flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.end(t) })
	if err := a.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a
}

// RunAPI is StartAPI outside of tests: the API server ends when use returns. It needs
// root.
func RunAPI(ctx context.Context, use func(*API) error, flags ...string) (err error) {
	if err := sweep(); err != nil {
		return err
	}
	dir, folder, err := claim()
	if err != nil {
		return err
	}
	defer folder.Close() // gives the lock back
	defer func() { err = errors.Join(err, vacate(dir)) }()
	a, err := bootAPI(dir, flags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.machine.cut()) }()
	if err := a.start(ctx); err != nil {
		return err
	}
	return use(a)
}

// bootAPI makes the machine of an API server whose files are in dir.
func bootAPI(dir string, flags []string) (*API, error) {
	path, err := Kubernetes()
	if err != nil {
		return nil, err
	}
	endpoints, err := loopbackEndpoints(2)
	if err != nil {
		return nil, err
	}
	m, err := boot("control-plane", dir, 0, waitForEnd)
	if err != nil {
		return nil, err
	}
	return newAPI(m, path, endpoints[0], endpoints[1], append([]string{
		"--endpoint-reconciler-type=none", // the Service of the API server is not used
		"--disable-admission-plugins=ServiceAccount",
	}, flags...)...), nil
}

// newAPI is an API server that runs on the machine when it is started, with these flags
// in addition to the usual ones.
func newAPI(m *Machine, binary string, endpoint, etcd netip.AddrPort, flags ...string) *API {
	return &API{
		machine: m, binary: binary, dir: m.dir, endpoint: endpoint, etcd: etcd,
		flags: flags, components: map[string]*process{},
	}
}

// end cuts the machine, and logs the components' last output if the test failed.
func (a *API) end(t testing.TB) {
	if t.Failed() {
		const lines = 15
		for _, p := range a.components {
			t.Logf("%s said last:\n%s", p.name, tail(p.log, lines))
		}
	}
	if err := a.machine.cut(); err != nil {
		t.Error(err)
	}
}

// start makes the control plane's files, and starts etcd and the API server.
func (a *API) start(ctx context.Context) (err error) {
	if a.authority, err = newAuthority(); err != nil {
		return err
	}
	if err := a.pki().write(a.authority, a.endpoint.Addr().AsSlice(), serviceOfAPI.AsSlice()); err != nil {
		return err
	}
	if a.admin, err = a.as("admin", adminGroup); err != nil {
		return err
	}
	if a.clients, err = kubernetes.NewForConfig(a.admin); err != nil {
		return err
	}
	if err := a.launch("etcd", a.etcdArgs()...); err != nil {
		return err
	}
	return a.startServer(ctx)
}

// launch starts a component. The control plane collects garbage less often than is usual, unless the
// environment says how often: on a machine of two processors that takes one of them for half a second
// out of two while objects change.
func (a *API) launch(name string, args ...string) error {
	p, err := a.machine.launch(name, []string{"GOGC=" + cmp.Or(os.Getenv("GOGC"), "400")}, args...)
	if err != nil {
		return err
	}
	a.components[name] = p
	return nil
}

func (a *API) startServer(ctx context.Context) error {
	if err := a.launch("kube-apiserver", a.serverArgs()...); err != nil {
		return err
	}
	return a.awaitComponent(ctx, "kube-apiserver", func(ctx context.Context) error {
		if err := a.clients.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return err
		}
		// Made by the server itself, a moment after it says that it is ready.
		_, err := a.clients.CoreV1().Namespaces().Get(ctx, core.NamespaceDefault, meta.GetOptions{})
		return err
	})
}

// awaitComponent waits until ready returns nil, or the component ends.
func (a *API) awaitComponent(ctx context.Context, name string, ready func(context.Context) error) error {
	if err := a.components[name].poll(ctx, ready); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Stop makes the API server unreachable, without closing any connection properly, until
// Start. No connection survives it.
func (a *API) Stop(t testing.TB) {
	t.Helper()
	if err := a.components["kube-apiserver"].stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// Start has the API server be there again, with all objects, at the same address. It
// returns when the server is ready.
func (a *API) Start(t testing.TB) {
	t.Helper()
	if err := a.startServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (a *API) startControllers(ctx context.Context, flags ...string) error {
	args, err := a.controllerArgs()
	if err != nil {
		return err
	}
	if err := a.launch("kube-controller-manager", append(args, flags...)...); err != nil {
		return err
	}
	return a.awaitComponent(ctx, "kube-controller-manager", func(ctx context.Context) error {
		_, err := a.clients.CoreV1().ServiceAccounts(core.NamespaceDefault).Get(ctx, "default", meta.GetOptions{})
		return err
	})
}

func (a *API) pki() pki { return pki{filepath.Join(a.dir, "pki")} }

// kubeconfig writes the file by which a component of the control plane, or a node,
// is known, and returns its path.
func (a *API) kubeconfig(user string, groups ...string) (string, error) {
	config, err := a.as(user, groups...)
	if err != nil {
		return "", err
	}
	path := filepath.Join(a.dir, filepath.Base(user)+".kubeconfig")
	if err := writeKubeconfig(path, config); err != nil {
		return "", fmt.Errorf("%s: %w", user, err)
	}
	return path, nil
}

// loopbackEndpoints returns free ports of one random address of 127.0.0.0/8. The kernel
// picks that address for no connection, so the ports stay free until they are used.
func loopbackEndpoints(count int) ([]netip.AddrPort, error) {
	address := [4]byte{127}
	if _, err := rand.Read(address[1:]); err != nil {
		return nil, err
	}
	address[3] |= 2 // neither 127.0.0.0 nor 127.0.0.1
	var endpoints []netip.AddrPort
	for range count {
		l, err := net.Listen("tcp", netip.AddrPortFrom(netip.AddrFrom4(address), 0).String())
		if err != nil {
			return nil, fmt.Errorf("free port: %w", err)
		}
		defer l.Close() // all at the end, so that none is given twice
		endpoints = append(endpoints, l.Addr().(*net.TCPAddr).AddrPort())
	}
	return endpoints, nil
}

// port is the endpoint's, as text.
func port(e netip.AddrPort) string { return strconv.Itoa(int(e.Port())) }
