// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/fuzzrand"
)

// fuzzPage is the size of the largest frames that are made up. Of one that is
// longer than maxFrame the program sees the first piece.
const fuzzPage = 4096

// fuzzDuration is how long TestFuzz runs unless FAIRLEAD_FUZZ says otherwise.
const fuzzDuration = 2 * time.Second

// exitsOf are the prefixes of the counters that go with a verdict.
var exitsOf = map[uint32][]string{
	xdpDrop: {"drop_"},
	xdpPass: {"pass_"},
	xdpTX:   {"forward_", "answer_"},
}

// fuzzServices are of every mode, family, protocol and segment; some have
// unstable rings, one has lost its backends.
func fuzzServices() (first, then []*lb.Service) {
	for i, forward := range xdp.Limits().Forwards {
		for _, segment := range []lb.Segment{{}, segment(100), redVXLAN, redGeneve} {
			if forward.Translates() && segment.Overlay() {
				continue // lb.Service.Check refuses it
			}
			tcp, udp := manyBackends(vip4, 4), manyBackends(vip6, 4)
			udp.Protocol, udp.Tracking = lb.UDP, lb.TrackingFull
			for _, svc := range []*lb.Service{tcp, udp} {
				svc.Port += uint16(i)
				svc.Forward, svc.Segment = forward, segment
				svc.Backends = reached(forward, svc.Backends)
				for b := range svc.Backends {
					svc.Backends[b].Port = svc.Port
				}
				fewer := *svc
				fewer.Backends = svc.Backends[1:]
				first, then = append(first, svc), append(then, &fewer)
			}
		}
	}
	empty, denied, limited, quic := *first[0], *first[0], *first[0], *first[1]
	empty.Port, empty.Backends = 7, nil
	denied.Port, denied.Sources = 8, lb.Sources{Deny: []netip.Prefix{netip.PrefixFrom(client4.Addr(), 32)}}
	limited.Port, limited.Limits = 9, lb.FlowLimits{NewFlows: 1000, NewFlowsPerSource: 100}
	quic.Port, quic.Affinity, quic.QUIC = 443, lb.AffinityQUIC, &testForm
	reject4, reject6 := empty, *first[1]
	reject4.Port, reject4.Unavailable = 10, lb.Reject
	reject6.Port, reject6.Unavailable, reject6.Backends = 10, lb.Reject, nil
	return append(first, &empty, &denied, &limited, &quic, &reject4, &reject6), then
}

// fuzzed is a plane into which random packets are put.
type fuzzed struct {
	plane *xdp.Unattached
	seeds [][]byte
}

// newFuzzed returns the plane and valid packets of all kinds.
func newFuzzed(t testing.TB) *fuzzed {
	p := openTestPlane(t, testPins(t), newStaticHops())
	f := &fuzzed{plane: p}
	first, then := fuzzServices()
	for _, svc := range append(first, then...) {
		if _, err := p.Update(t.Context(), svc); err != nil {
			t.Fatal(err)
		}
	}
	for _, svc := range first {
		client := client4
		if svc.Address.Is6() {
			client = client6
		}
		f.seeds = append(f.seeds, flowPacket(svc.VIP, client))
	}
	f.seeds = append(append(f.seeds, edgeFrames(web4)...), edgeFrames(web6)...)
	f.seeds = append(f.seeds, natSeeds(t, p)...)
	inside := transport(web4, client4)
	inside[1].(*layers.TCP).SYN = false
	f.seeds = append(
		f.seeds, withTags(1, 2), withType(layers.EthernetTypeARP),
		frame{ip: append([]gopacket.SerializableLayer{
			ipLayer(gateway4, vip4, layers.IPProtocolICMPv4),
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4), Seq: 1400},
			ipLayer(vip4, client4.Addr(), layers.IPProtocolTCP)}, inside[1])}.build(),
	)
	return f
}

// natSeeds are packets of sessions, from both sides: whole, in fragments, and as
// errors quote them. So are those that the sessions were begun with.
func natSeeds(t testing.TB, p *xdp.Unattached) [][]byte {
	program, err := p.Program()
	must(t, err)
	var seeds [][]byte
	for _, c := range natCases() {
		c.vip.Port, c.backend = 1000, netip.AddrPortFrom(c.backend.Addr(), 1000)
		if _, err := p.Update(t.Context(), c.service()); err != nil {
			t.Fatal(err)
		}
		_, out, err := testRun(program, c.fromClient(tcpSYN).build())
		must(t, err)
		port := endOf(c.vip.Protocol, out).snat.Port()
		forth, back := c.fromClient(tcpACK), c.fromServer(tcpACK|tcpFIN, port)
		seeds = append(seeds, c.fromClient(tcpSYN).build(), forth.build(), back.build())
		seeds = append(append(seeds, inFragments(forth, 1, 16)...), inFragments(back, 2, 16)...)
		for _, m := range errorsOf(c.vip.Address) {
			seeds = append(seeds,
				errorFrame(router(c.vip.Address), c.snat(), m, packetOf(c.atServer(tcpACK, port)), 60).build(),
				errorFrame(router(c.vip.Address), c.vip.Address, m, packetOf(c.atClient(tcpACK)), 60).build())
		}
	}
	return seeds
}

// counted is the sum of the exits whose names begin so.
func counted(exits map[string]uint64, prefixes []string) (sum uint64) {
	for name, count := range exits {
		for _, prefix := range prefixes {
			if strings.HasPrefix(name, prefix) {
				sum += count
			}
		}
	}
	return sum
}

// put runs packets through the program, and returns an error if their verdicts or
// the counters are wrong.
func (f *fuzzed) put(packets [][]byte) error {
	program, err := f.plane.Program()
	if err != nil {
		return err
	}
	before, err := f.plane.Programs.Exits()
	if err != nil {
		return err
	}
	verdicts := map[uint32]uint64{}
	for _, in := range packets {
		verdict, out, err := testRun(program, in)
		switch {
		case err != nil:
			return fmt.Errorf("packet % x: %w", in, err)
		case exitsOf[verdict] == nil:
			return fmt.Errorf("packet % x: verdict %d", in, verdict)
		case verdict == xdpPass && !bytes.Equal(in, out):
			return fmt.Errorf("packet % x: passed, but changed: % x", in, out)
		}
		if verdict == xdpTX && wrongSum(in) == "" && wrongSum(out) != "" {
			return fmt.Errorf("packet % x: sent with a wrong %s: % x", in, wrongSum(out), out)
		}
		verdicts[verdict]++
	}
	after, err := f.plane.Programs.Exits()
	if err != nil {
		return err
	}
	for name, count := range before {
		after[name] -= count
	}
	for verdict, prefixes := range exitsOf {
		if got := counted(after, prefixes); got != verdicts[verdict] {
			return fmt.Errorf("%d packets with verdict %d, but the exits %v count %d: %v", verdicts[verdict], verdict, prefixes, got, after)
		}
	}
	if n := after["drop_internal_error"]; n > 0 {
		return fmt.Errorf("%d packets found tables that contradict each other", n)
	}
	return nil
}

// Random and damaged packets of all kinds, for FAIRLEAD_FUZZ (a duration such as
// 60s): the program gives a verdict that it has a counter for, counts every packet exactly
// once, and doesn't change packets that it passes. If all checksums of a packet are right,
// the checksums of the packet sent are right, too.
func TestFuzz(t *testing.T) {
	long := fuzzrand.Duration(t, fuzzDuration)
	f := newFuzzed(t)
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	whole, err := f.plane.Programs.Exits()
	must(t, err)
	begin, packets := time.Now(), 0
	for time.Since(begin) < long {
		batch := make([][]byte, 64)
		for i := range batch {
			batch[i] = mutate(random, f.seeds)
		}
		if err := f.put(batch); err != nil {
			t.Fatalf("after %d packets: %v", packets, f.blame(batch, err))
		}
		packets += len(batch)
	}
	reached, err := f.plane.Programs.Exits()
	must(t, err)
	maps.DeleteFunc(reached, func(name string, count uint64) bool { return count == whole[name] })
	t.Logf("%d packets left by %d of %d exits: %v", packets, len(reached), len(whole), reached)
	fuzzrand.Covered(t, 1, packets)
}

// blame finds the packet of a batch that the counters are wrong about.
func (f *fuzzed) blame(batch [][]byte, err error) error {
	for _, in := range batch {
		if one := f.put([][]byte{in}); one != nil {
			return fmt.Errorf("%w: % x", one, in)
		}
	}
	return err
}

// FuzzPacket is for `go test -fuzz`, which needs a corpus of its own.
func FuzzPacket(f *testing.F) {
	fuzzed := newFuzzed(f)
	for _, in := range fuzzed.seeds {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < ethernetHeader || len(in) > fuzzPage {
			return
		}
		must(t, fuzzed.put([][]byte{in}))
	})
}

// mutate makes a packet out of one or two of those given.
func mutate(random *rand.Rand, seeds [][]byte) []byte {
	in := bytes.Clone(seeds[random.IntN(len(seeds))])
	for range random.IntN(5) {
		switch random.IntN(10) {
		case 0, 1:
			in = flip(random, in)
		case 2:
			in = in[:random.IntN(len(in)+1)]
		case 3:
			in = append(in, noise(random, random.IntN(fuzzPage))...)
		case 4:
			in = insert(random, in, minEthernet, tags(random))
		case 5:
			in = insert(random, in, afterIP(in), options(random))
		case 6:
			in = splice(random, in, seeds[random.IntN(len(seeds))])
		case 7:
			in = extend(random, in)
		case 8:
			in = header(random, in)
		case 9:
			in = fit(in)
		}
	}
	if len(in) < ethernetHeader {
		in = append(in, noise(random, ethernetHeader-len(in))...)
	}
	return in[:min(len(in), fuzzPage)]
}

// minEthernet is where the type of an untagged frame lies.
const minEthernet = 12

func noise(random *rand.Rand, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(random.Uint32())
	}
	return out
}

// flip changes a bit or a byte, most often within the headers.
func flip(random *rand.Rand, in []byte) []byte {
	if len(in) == 0 {
		return in
	}
	at := random.IntN(len(in))
	if random.IntN(4) > 0 {
		at %= 96
	}
	if random.IntN(2) == 0 {
		in[at] ^= 1 << random.IntN(8)
	} else {
		in[at] = byte(random.Uint32())
	}
	return in
}

// insert puts bytes into a frame, at its end if it is too short.
func insert(_ *rand.Rand, in []byte, at int, what []byte) []byte {
	return slices.Insert(in, min(at, len(in)), what...)
}

// tags are one to three VLAN tags, customers' or providers'.
func tags(random *rand.Rand) (out []byte) {
	for range 1 + random.IntN(3) {
		kind := []uint16{0x8100, 0x8100, 0x88a8}[random.IntN(3)]
		id := []uint16{0, 100, uint16(random.Uint32())}[random.IntN(3)]
		out = binary.BigEndian.AppendUint16(out, kind)
		out = binary.BigEndian.AppendUint16(out, id)
	}
	return out
}

// afterIP returns the offset behind an untagged frame's first IP header.
func afterIP(in []byte) int {
	if len(in) > atIP && in[atIP]>>4 == 6 {
		return atIP + 40
	}
	return atIP + 20
}

// options are as many words as IPv4 options, or IPv6 extension headers, may be.
func options(random *rand.Rand) []byte { return noise(random, 4*(1+random.IntN(20))) }

// splice continues with another packet from some place on.
func splice(random *rand.Rand, in, other []byte) []byte {
	return append(in[:random.IntN(len(in)+1)], other[random.IntN(len(other)):]...)
}

// extend puts a chain of IPv6 extension headers behind an IPv6 header, or
// options behind an IPv4 header, with lengths that are right.
func extend(random *rand.Rand, in []byte) []byte {
	if len(in) < atIP+40 {
		return in
	}
	if in[atIP]>>4 != 6 {
		words := 1 + random.IntN(10)
		in[atIP] = 0x45 + byte(words)
		return fit(insert(random, in, atIP+20, make([]byte, 4*words)))
	}
	for range 1 + random.IntN(12) {
		one := make([]byte, 8*(1+random.IntN(3)))
		one[0], one[1] = in[atNext6], byte(len(one)/8-1)
		in[atNext6] = []byte{0, 43, 44, 51, 60, 135, 139, 140}[random.IntN(8)]
		if in[atNext6] == 44 {
			one = append([]byte{one[0], 0, 0, byte(random.IntN(2))}, noise(random, 4)...)
		}
		in = insert(random, in, atIP+40, one)
	}
	return fit(in)
}

// header overwrites a field that decides how a packet is read.
func header(random *rand.Rand, in []byte) []byte {
	at := []int{minEthernet, minEthernet + 1, atIP, atLength4, atLength4 + 1, atFragment, atFragment + 1, atProtocol, atNext6, atIP + 8, afterIP(in), afterIP(in) + 1, afterIP(in) + 13}[random.IntN(13)]
	values := []byte{0, 1, 4, 6, 17, 41, 43, 44, 50, 51, 58, 60, 0x45, 0x46, 0x4f, 0x60, 0x20, 0x40, 0xff, byte(random.Uint32())}
	if at < len(in) {
		in[at] = values[random.IntN(len(values))]
	}
	return in
}

// fit sets an untagged frame's IP length to the frame's, so that the rest
// of it is looked at.
func fit(in []byte) []byte {
	switch {
	case len(in) < atIP+40:
	case in[atIP]>>4 == 4:
		binary.BigEndian.PutUint16(in[atLength4:], uint16(len(in)-atIP))
	case in[atIP]>>4 == 6:
		binary.BigEndian.PutUint16(in[atLength6:], uint16(len(in)-atIP-40))
	}
	return in
}
