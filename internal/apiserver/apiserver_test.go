// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
)

// A server doesn't start without TLS where others reach it, nor with bad credentials.
func TestRunErrors(t *testing.T) {
	good, bad := filepath.Join(t.TempDir(), "good"), filepath.Join(t.TempDir(), "bad")
	writeFile(t, good, "[]")
	writeFile(t, bad, "")
	for _, test := range []struct {
		listen string
		files  Files
		want   string
	}{
		{":0", Files{Tokens: good}, "without a certificate only loopback addresses"},
		{"0.0.0.0:0", Files{Tokens: good}, "without a certificate only loopback addresses"},
		{"127.0.0.1:0", Files{Tokens: bad}, "credentials: " + bad + ": empty"},
		{"127.0.0.1:0", Files{Tokens: bad + "x"}, "no such file"},
		{":0", Files{Tokens: good, Certificate: good, Key: good}, "credentials: "},
		{":0", Files{ClientCA: good}, "no certificate"},
	} {
		err := Run(t.Context(), &rest.Config{Host: "http://127.0.0.1:1"}, Options{Listen: test.listen, Files: test.files, Rate: 1, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %+v: error %v, want %s", test.listen, test.files, err, test.want)
		}
	}
}

// Connections that are accepted end when a client acknowledges nothing.
func TestListen(t *testing.T) {
	listener, err := listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	raw, err := accepted.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if failed := raw.Control(func(fd uintptr) {
		if got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); err != nil || got != int(sentTimeout.Milliseconds()) {
			t.Errorf("TCP_USER_TIMEOUT %d, %v", got, err)
		}
	}); failed != nil {
		t.Error(failed)
	}
}
