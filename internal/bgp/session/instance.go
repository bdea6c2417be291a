// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
)

// Instance is an instance of the library. It listens on a loopback address only,
// where Sessions connect for their peers. The library knows each peer by a key: the
// loopback address that its connection comes from.
type Instance struct {
	lib    *server.BgpServer
	listen netip.AddrPort
	log    *slog.Logger
	cancel context.CancelFunc
	// password signs the connections from here, so that no other process can connect.
	password string
	// stuck is set when the library accepts no more connections: it stops after an
	// error, such as a shortage of file descriptors.
	stuck atomic.Bool

	relays sync.WaitGroup // of sessions, and connections to the library

	mu       sync.Mutex
	sessions map[netip.Addr]*Session // by key
	closed   bool
}

// Change is a change of the state of a peer's session.
type Change struct {
	Key   netip.Addr
	State bgp.SessionState
	// Kept reports that the session is lost, but the peer may restart, so that its
	// routes are kept (RFC 4724 §4.2).
	Kept bool
}

// unicastFamilies are IPv4 and IPv6, by the library's numbers. Its default is tables
// of all families, ten megabytes an instance.
var unicastFamilies = []uint32{0, 1}

// Keys are random. The first bits distinguish clients of a reflector from other peers.
var (
	clientKeys = netip.MustParsePrefix("127.128.0.0/10")
	routerKeys = netip.MustParsePrefix("127.64.0.0/10")
)

func newKey(prefix netip.Prefix) netip.Addr {
	key := prefix.Addr().As4()
	binary.BigEndian.PutUint32(key[:], binary.BigEndian.Uint32(key[:])|rand.Uint32()>>prefix.Bits())
	return netip.AddrFrom4(key)
}

// Start starts an instance without peers. changed is called when a peer's session changes
// its state, endOfRIB when the peer with a key has sent an End-of-RIB: one after the other,
// so they must not wait for a session. The library writes global variables when
// an instance starts, always the same values: the race detector reports that if
// other instances have peers already.
func Start(ctx context.Context, local bgp.Local, changed func(Change), endOfRIB func(key netip.Addr), log *slog.Logger) (*Instance, error) {
	watching, cancel := context.WithCancel(context.Background())
	i := &Instance{
		lib: server.NewBgpServer(server.LoggerOption(slog.New(errorsOnly{log.Handler()}), new(slog.LevelVar))),
		log: log, cancel: cancel, password: crand.Text(), sessions: make(map[netip.Addr]*Session),
	}
	go i.lib.Serve()
	err := i.listenOnLoopback(ctx, local)
	if err == nil {
		err = i.lib.WatchEvent(watching, server.WatchEventMessageCallbacks{
			OnPeerUpdate: func(e *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
				if e.Type == apiutil.PEER_EVENT_STATE {
					i.changed(&e.Peer.State, changed)
				}
			},
			OnPathEor: func(p *apiutil.Path, _ time.Time) { endOfRIB(p.PeerAddress) },
		}, server.WatchPeer(), server.WatchEor(false))
	}
	if err != nil {
		i.Close()
		return nil, fmt.Errorf("bgp: %w", err)
	}
	return i, nil
}

// listenOnLoopback starts BGP on a random port; other sockets may have the first ones.
func (i *Instance) listenOnLoopback(ctx context.Context, local bgp.Local) error {
	for attempts := 100; ; attempts-- {
		i.listen = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 1<<15+rand.N[uint16](1<<14))
		err := i.lib.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
			Asn: local.ASN, RouterId: local.RouterID.String(), Families: unicastFamilies,
			ListenAddresses: []string{i.listen.Addr().String()}, ListenPort: int32(i.listen.Port()),
		}})
		if err == nil {
			return i.setPassword(ctx)
		}
		if !errors.Is(err, unix.EADDRINUSE) || attempts == 1 {
			return err
		}
	}
}

// loopback has the keys of all peers.
var loopback = netip.MustParsePrefix("127.0.0.0/8")

// setPassword protects the library's listener with a password. The library sets it for
// a range of dynamic neighbours, of which there are none.
func (i *Instance) setPassword(ctx context.Context) error {
	const group = "relay"
	err := i.lib.AddPeerGroup(ctx, &api.AddPeerGroupRequest{PeerGroup: &api.PeerGroup{
		Conf: &api.PeerGroupConf{PeerGroupName: group, PeerAsn: reservedASN, AuthPassword: i.password},
	}})
	if err != nil {
		return err
	}
	return i.lib.AddDynamicNeighbor(ctx, &api.AddDynamicNeighborRequest{
		DynamicNeighbor: &api.DynamicNeighbor{Prefix: loopback.String(), PeerGroup: group},
	})
}

// reservedASN is the number of none of the peers (RFC 7300).
const reservedASN = bgp.MaxASN + 1

// errorsOnly drops the library's other messages: sessions are logged by their owners.
type errorsOnly struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h errorsOnly) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && h.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h errorsOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return errorsOnly{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h errorsOnly) WithGroup(name string) slog.Handler { return errorsOnly{h.Handler.WithGroup(name)} }

// Close drops all sessions without a notification and stops the instance. The library
// forgets its own configuration then, and crashes if it takes a connection afterwards: all
// connections to it are awaited, and none begins any more. Sessions end one after the other: the
// library overwrites the configuration of a peer that it loses soon after its
// beginning, while the loss of another one may read it.
func (i *Instance) Close() {
	i.cancel()
	i.mu.Lock()
	i.closed = true
	sessions := maps.Clone(i.sessions)
	i.mu.Unlock()
	ctx, done := context.WithTimeout(context.Background(), libraryTimeout)
	defer done()
	for key, s := range sessions {
		s.Drop("stopped")
		for i.state(key) == api.PeerState_SESSION_STATE_ESTABLISHED && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	i.relays.Wait()
	i.lib.Stop()
}

// Remove ends the session of a peer and removes the peer and its routes.
func (i *Instance) Remove(ctx context.Context, key netip.Addr) error {
	if err := i.lib.DeletePeer(ctx, &api.DeletePeerRequest{Address: key.String()}); err != nil {
		return fmt.Errorf("bgp: %w", err)
	}
	return nil
}

// begin begins the session of a peer that it adds and, afterwards, removes. The library
// gets a new peer each time: it makes one that has had a session wait for seconds.
func (i *Instance) begin(ctx context.Context, s *Session, config *api.Peer) error {
	if err := i.lib.AddPeer(ctx, &api.AddPeerRequest{Peer: config}); err != nil {
		s.peer.Close()
		return fmt.Errorf("bgp: %w", err)
	}
	for i.state(s.key) != api.PeerState_SESSION_STATE_ACTIVE && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	err := i.connect(ctx, s)
	go func() {
		<-s.ended
		_ = i.Remove(context.Background(), s.key) // fails if the instance has stopped
	}()
	return err
}

// connect connects s to the library and starts it.
func (i *Instance) connect(ctx context.Context, s *Session) error {
	i.mu.Lock()
	err := ctx.Err()
	if i.closed {
		err = net.ErrClosed
	}
	if err == nil {
		i.relays.Add(1)
		defer i.relays.Done()
	}
	i.mu.Unlock()
	if err == nil {
		err = i.dial(s)
	}
	if err != nil {
		s.peer.Close()
		close(s.ended)
		return fmt.Errorf("bgp: %w", err)
	}
	i.mu.Lock()
	i.sessions[s.key] = s
	if i.closed {
		s.peer.Close()
	}
	i.mu.Unlock()
	began := time.Now()
	i.relays.Go(func() {
		s.relay()
		if s.Status().State == bgp.OpenSent && s.messagesSent.Load() == 0 && time.Since(began) > dialTimeout && !i.stuck.Swap(true) {
			i.log.Error("the bgp library accepts no more connections")
		}
		close(s.ended)
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.sessions[s.key] == s {
			delete(i.sessions, s.key)
		}
	})
	return nil
}

// dial connects s to the library. It can't be cancelled: the library may have the connection
// already and take it after Close. It fails only if the library takes none for long.
func (i *Instance) dial(s *Session) error {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: s.key.AsSlice()}, KeepAlive: -1, Timeout: libraryTimeout}
	dialer.Control = func(_, _ string, raw syscall.RawConn) error {
		err := setKey(raw, loopback, i.password)
		if errors.Is(err, unix.ENOPROTOOPT) { // the kernel has no signatures, the library no password
			return nil
		}
		return err
	}
	dialer.SetMultipathTCP(false)
	conn, err := dialer.Dial("tcp4", i.listen.String())
	if err != nil {
		return err
	}
	s.library = conn.(*net.TCPConn)
	return nil
}

// changed follows the library's state of a peer.
func (i *Instance) changed(state *apiutil.PeerState, changed func(Change)) {
	c := Change{
		Key: state.NeighborAddress, State: sessionStates[state.SessionState],
		Kept: state.DisconnectReason == api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART,
	}
	i.mu.Lock()
	s := i.sessions[c.Key]
	i.mu.Unlock()
	if s != nil && c.State == bgp.Established {
		for i.state(c.Key) == api.PeerState_SESSION_STATE_OPENCONFIRM {
			// The library reports the session as established shortly before it sends
			// updates: a route that changes in between is lost.
			runtime.Gosched()
		}
		s.establish()
	}
	if s != nil && c.State == bgp.Idle { // the peer may not read the library's last message
		_ = s.peer.SetWriteDeadline(time.Now().Add(closeTimeout))
	}
	changed(c)
}

// state is the library's state of a peer; unspecified if the peer is removed, or the
// instance has stopped.
func (i *Instance) state(key netip.Addr) (state api.PeerState_SessionState) {
	_ = i.lib.ListPeer(context.Background(), &api.ListPeerRequest{Address: key.String()}, func(p *api.Peer) {
		state = p.GetState().GetSessionState()
	})
	return state
}

var sessionStates = map[wire.FSMState]bgp.SessionState{
	wire.BGP_FSM_IDLE: bgp.Idle, wire.BGP_FSM_CONNECT: bgp.Connect, wire.BGP_FSM_ACTIVE: bgp.Active,
	wire.BGP_FSM_OPENSENT: bgp.OpenSent, wire.BGP_FSM_OPENCONFIRM: bgp.OpenConfirm, wire.BGP_FSM_ESTABLISHED: bgp.Established,
}

// deferral bounds how long the library holds routes back after its own restart. It is
// never notified of one, but the option has to be set.
const deferral = 1 // second

// apiPeer is the peer's configuration in the library, which connects to its key. The
// options of the peer's own connection are not the library's.
func apiPeer(local *bgp.Local, peer *bgp.Peer, key netip.Addr) *api.Peer {
	config := &api.Peer{
		Conf:      &api.PeerConf{NeighborAddress: key.String(), PeerAsn: peer.ASN, LocalAsn: local.ASN},
		Transport: &api.Transport{PassiveMode: true},
		Timers:    &api.Timers{Config: &api.TimersConfig{HoldTime: uint64(peer.HoldTime / time.Second)}},
	}
	for _, afi := range []api.Family_Afi{api.Family_AFI_IP, api.Family_AFI_IP6} {
		config.AfiSafis = append(config.AfiSafis, &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Family: &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST}, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: peer.RestartTime > 0}},
		})
	}
	if peer.RestartTime > 0 {
		config.GracefulRestart = &api.GracefulRestart{
			Enabled: true, RestartTime: uint32(peer.RestartTime / time.Second), DeferralTime: deferral,
		}
	}
	return config
}
