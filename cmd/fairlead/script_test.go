// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/httpd"
)

// TestMain makes the test binary stand in for the fairlead executable in
// scripts, under both of its names.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fairlead": main, pluginName: main})
}

// TestScripts runs command lines as a user types them.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("..", "..", "test", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"answer": answer},
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Condition: func(name string) (bool, error) {
			if name != "root" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return os.Geteuid() == 0, nil
		},
	})
}

// answer SOCKET PATH FILE has requests for a path of a control socket answered
// with a file, until the script ends.
func answer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: answer SOCKET PATH FILE")
	}
	claim, err := control.ClaimSocket(ts.MkAbs(args[0]))
	ts.Check(err)
	listener, err := claim.Listen()
	ts.Check(err)
	body := []byte(ts.ReadFile(args[2]))
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+args[1], func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	server := &httpd.Server{Name: "script", Handler: mux, Connections: 8, Log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener) }()
	ts.Defer(func() {
		stop()
		ts.Check(<-ended)
		ts.Check(claim.Release())
	})
}
