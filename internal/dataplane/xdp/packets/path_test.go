// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

// probeLine is a plane in a network namespace of its own, and the far end of the
// wire to all its backends. The namespace ends with the test's thread.
type probeLine struct {
	*xdp.Unattached
	hops *staticHops
	wire int // a packet socket there
}

func newProbeLine(t *testing.T) *probeLine {
	t.Helper()
	needRoot(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	ns, err := netns.New()
	must(t, err)
	must(t, ns.Close())
	must(t, addVeth("near", "far"))
	l := &probeLine{hops: newStaticHops()}
	for _, name := range []string{"near", "far"} {
		link, err := netlink.LinkByName(name)
		must(t, err)
		if name == "near" {
			l.hops.index = link.Attrs().Index
			for _, a := range []string{local4.String() + "/24", local6.String() + "/64"} {
				address, err := netlink.ParseAddr(a)
				must(t, err)
				address.Flags = unix.IFA_F_NODAD
				must(t, netlink.AddrAdd(link, address))
			}
			continue
		}
		all := int(table.WirePort(unix.ETH_P_ALL))
		l.wire, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		must(t, err)
		t.Cleanup(func() { unix.Close(l.wire) })
		must(t, unix.Bind(l.wire, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: link.Attrs().Index}))
		must(t, unix.SetsockoptInt(l.wire, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1))
		timeout := unix.NsecToTimeval(int64(5 * time.Second))
		must(t, unix.SetsockoptTimeval(l.wire, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout))
	}
	l.Unattached = openTestPlane(t, "", l.hops)
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// send puts a frame on the way that probes take, with a mark.
func (l *probeLine) send(t *testing.T, mark uint32, frame []byte) {
	t.Helper()
	device, err := net.InterfaceByName("fairlead-probe")
	must(t, err)
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(socket)
	must(t, unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_MARK, int(mark)))
	err = unix.Sendto(socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: device.Index})
	if err != nil && !errors.Is(err, unix.ENOBUFS) { // which says that the first program dropped it
		t.Fatal(err)
	}
}

// receive returns the next frame that the data plane sent, with its VLAN tag.
func (l *probeLine) receive(t *testing.T) []byte {
	t.Helper()
	for {
		frame, control := make([]byte, 4096), make([]byte, 256)
		n, size, _, _, err := unix.Recvmsg(l.wire, frame, control, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatalf("no frame comes out: %v; %v", err, l.counted(t))
		}
		if frame = frame[:n]; !bytes.Equal(frame[6:12], ownMAC[:]) {
			continue // the kernel's own
		}
		return append(slices.Clone(frame[:12]), append(tag(t, control[:size]), frame[12:]...)...)
	}
}

// tag returns the VLAN tag that the kernel has taken out of a frame.
func tag(t *testing.T, control []byte) []byte {
	t.Helper()
	messages, err := unix.ParseSocketControlMessage(control)
	must(t, err)
	for _, m := range messages {
		// struct tpacket_auxdata of linux/if_packet.h
		if status := binary.NativeEndian.Uint32(m.Data); status&unix.TP_STATUS_VLAN_VALID != 0 {
			return binary.BigEndian.AppendUint16([]byte{0x81, 0}, binary.NativeEndian.Uint16(m.Data[16:]))
		}
	}
	return nil
}

// counted returns the outcomes of the probes so far.
func (l *probeLine) counted(t *testing.T) map[string]uint64 {
	t.Helper()
	counters, err := l.Probes()
	must(t, err)
	maps.DeleteFunc(counters, func(_ string, n uint64) bool { return n == 0 })
	return counters
}

// The same packet through the balancer and as a probe becomes the same frame, to
// the last byte: in every mode, family, protocol and VLAN.
func TestProbeFrames(t *testing.T) {
	l := newProbeLine(t)
	sent := uint64(0)
	for _, c := range forwardCases() {
		if c.index = l.hops.index; !c.forward.Translates() && c.tagIn == 0 && !c.segment.Tagged() {
			l.checkAlike(t, c)
			sent++
		}
	}
	if got, want := l.counted(t), (map[string]uint64{"sent": sent}); !maps.Equal(got, want) {
		t.Errorf("probes %v, want %v", got, want)
	}
}

// checkAlike sends one packet by both ways. It is not a subtest, which would run on
// a thread of another network namespace.
func (l *probeLine) checkAlike(t *testing.T, c forwardCase) {
	t.Helper()
	l.hops.vlan = c.tagOut
	svc := c.service()
	update(t, l.Unattached, svc)
	defer remove(t, l.Unattached, svc.VIP)
	_, want := run(t, l.Unattached, c.in())
	way, release, err := l.Open(svc, svc.Backends[0], 80)
	must(t, err)
	defer release()
	if target := netip.AddrPortFrom(svc.Address, 80); way.Target != target || way.Source.Is4() != svc.Address.Is4() || way.Mark == 0 {
		t.Errorf("%s: path %+v, want to %s", c, way, target)
	}
	l.send(t, way.Mark, c.in())
	if got := l.receive(t); !bytes.Equal(got, want) {
		t.Errorf("%s: the probe's frame differs from the client's:\n%s", c, cmp.Diff(dump(want), dump(got)))
	}
}

// probed is a service of two backends with different MAC addresses.
func probed() *lb.Service { return manyBackends(vip4, 2) }

func (l *probeLine) open(t *testing.T, svc *lb.Service, b lb.Backend) (health.Path, func()) {
	t.Helper()
	way, release, err := l.Open(svc, b, 80)
	must(t, err)
	return way, release
}

// wantReached sends a probe that has to come to a MAC address.
func (l *probeLine) wantReached(t *testing.T, way health.Path, mac lb.MAC) {
	t.Helper()
	l.send(t, way.Mark, flowPacket(probed().VIP, client4))
	if got := l.receive(t); !bytes.Equal(got[:6], mac[:]) {
		t.Errorf("probe is sent to %s, want %s", net.HardwareAddr(got[:6]), mac)
	}
}

// wantDropped sends a probe that has to be dropped.
func (l *probeLine) wantDropped(t *testing.T, mark uint32, counter string) {
	t.Helper()
	before := l.counted(t)
	l.send(t, mark, flowPacket(probed().VIP, client4))
	for deadline := time.Now().Add(5 * time.Second); ; {
		now := l.counted(t)
		if now[counter] == before[counter]+1 && now["sent"] == before["sent"] {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("counters move from %v to %v, want %s", before, now, counter)
		}
		time.Sleep(time.Millisecond)
	}
}

// A way leads to its backend through every change of the tables, and nowhere
// when the backend, its next hop or the way itself is gone.
func TestProbeTargets(t *testing.T) {
	l := newProbeLine(t)
	svc := probed()
	first, second := svc.Backends[0], svc.Backends[1]
	update(t, l.Unattached, svc)
	one, release := l.open(t, svc, first)
	two, _ := l.open(t, svc, second)
	l.wantReached(t, one, macOf(first.Address))
	l.wantReached(t, two, macOf(second.Address))

	// More slots: the service moves within the table.
	for i := range 40 {
		b := lb.Backend{Address: netip.AddrFrom4([4]byte{10, 0, 2, byte(100 + i)}), Port: 80, Weight: 1}
		svc.Backends = append(slices.Clone(svc.Backends), b)
	}
	grown := *svc
	update(t, l.Unattached, &grown)
	l.wantReached(t, one, macOf(first.Address))
	l.wantReached(t, two, macOf(second.Address))

	l.hops.lost[first.Address] = true
	update(t, l.Unattached, &grown)
	l.wantDropped(t, one.Mark, "no_next_hop")
	l.wantReached(t, two, macOf(second.Address))
	if _, _, err := l.Open(svc, first, 80); !errors.Is(err, errLost) || !strings.Contains(err.Error(), "no next hop: ") {
		t.Errorf("opening a way to a backend without a next hop: error %v, want %v", err, errLost)
	}
	delete(l.hops.lost, first.Address)
	update(t, l.Unattached, &grown)
	l.wantReached(t, one, macOf(first.Address))

	release()
	release()
	l.wantDropped(t, one.Mark, "no_target")
	again, _ := l.open(t, svc, first)
	if again.Mark == one.Mark {
		t.Errorf("mark 0x%x is given out again at once", again.Mark)
	}

	remove(t, l.Unattached, svc.VIP)
	l.wantDropped(t, two.Mark, "no_target")
	if _, _, err := l.Open(svc, second, 80); err == nil || !strings.Contains(err.Error(), "not programmed") {
		t.Errorf("opening a way to a service that is gone: error %v", err)
	}
	update(t, l.Unattached, svc)
	l.wantReached(t, two, macOf(second.Address))
	l.wantDropped(t, 0, "no_mark")
	l.wantDropped(t, two.Mark|1<<30, "no_mark")
}

// A marked socket needs no route to the VIP: there is none here.
func TestProbeWithoutRoute(t *testing.T) {
	l := newProbeLine(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		svc := probed()
		svc.Address, svc.Protocol = vip, lb.UDP
		update(t, l.Unattached, svc)
		way, _ := l.open(t, svc, svc.Backends[0])
		dialer := net.Dialer{
			LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(way.Source, 0)),
			Control: func(_, _ string, c syscall.RawConn) (err error) {
				controlled := c.Control(func(fd uintptr) {
					err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(way.Mark))
				})
				return errors.Join(err, controlled)
			},
		}
		conn, err := dialer.DialContext(t.Context(), "udp", way.Target.String())
		must(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte("a probe"))
		must(t, err)
		mac := macOf(svc.Backends[0].Address)
		if frame := l.receive(t); !bytes.HasSuffix(frame, []byte("a probe")) || !bytes.HasPrefix(frame, mac[:]) {
			t.Errorf("%s: frame % x", vip, frame)
		}
	}
}
