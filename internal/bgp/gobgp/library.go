// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"unsafe"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/server"

	"fairlead.io/fairlead/internal/bgp"
)

// unicastFamilies are IPv4 and IPv6, by the library's own numbers: unless told, it
// has tables of all families that there are, ten megabytes for each instance.
var unicastFamilies = []uint32{0, 1}

// launch starts the library so that it listens nowhere, and returns where it
// takes connections from. Each start writes the library's options of route selection
// to two variables that all its instances read: always the same, so nobody can see
// it, but the race detector may if instances are at work meanwhile.
func launch(ctx context.Context, local bgp.Local, log *slog.Logger) (*server.BgpServer, chan<- net.Conn, error) {
	lib := server.NewBgpServer(server.LoggerOption(slog.New(quiet{log.Handler()}), new(slog.LevelVar)))
	accept, err := acceptFrom(lib)
	if err != nil {
		return nil, nil, err
	}
	go lib.Serve()
	err = lib.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: local.ASN, RouterId: local.RouterID.String(), ListenPort: -1, Families: unicastFamilies,
	}})
	if err != nil {
		lib.Stop()
		return nil, nil, fmt.Errorf("bgp: %w", err)
	}
	return lib, accept, nil
}

// acceptFrom gives the library, which isn't serving yet, a channel of connections
// as if it listened. It has no public way to take a connection, and its own
// dialling is slow (1.5 s before the first try, 5 s after a loss) and says nothing
// of why it fails; so its field is found by name, and a library that no longer has
// it is an error.
func acceptFrom(lib *server.BgpServer) (chan<- net.Conn, error) {
	accept := make(chan net.Conn)
	field := reflect.ValueOf(lib).Elem().FieldByName("acceptCh")
	if !field.IsValid() || field.Type() != reflect.TypeOf(accept) {
		return nil, fmt.Errorf("gobgp: this version has no acceptCh of type chan net.Conn")
	}
	*(*chan net.Conn)(unsafe.Pointer(field.UnsafeAddr())) = accept
	return accept, nil
}

// quiet passes on only the library's errors: what becomes of sessions is said by
// those who keep them.
type quiet struct{ slog.Handler }

// Enabled implements slog.Handler.
func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && q.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
