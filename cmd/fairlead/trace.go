// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/frame"
	"fairlead.io/fairlead/internal/observe"
)

// traceOptions are the flags of "trace".
type traceOptions struct {
	reader
	from, to, protocol string
	packet             frame.Description
	device, pcap       string
}

func newTraceCommand(e env) *cobra.Command {
	var o traceOptions
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Show what the program does with a packet, and why",
		Long: `Show what the program does with a packet, and why. The packet is described by
flags or read from a capture file, and runs through a second instance of the
loaded program, with the live tables, which it doesn't change.`,
		Example: `  fairlead trace --from 192.0.2.7:41000 --to 10.1.1.1:80
  fairlead trace --from 192.0.2.7:41000 --to 10.1.1.1:80 --flags ack --size 1500
  fairlead trace --pcap problem.pcapng`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.AddFlagSet(o.flags())
	flags.StringVar(&o.pcap, "pcap", "", "trace every packet of a pcap or pcapng file (- is the standard input)")
	o.register(cmd)
	cli.Complete(cmd, "pcap", completeFiles)
	cli.Complete(cmd, "protocol", cobra.FixedCompletions([]cobra.Completion{"tcp", "udp", "icmp"}, cobra.ShellCompDirectiveNoFileComp))
	cli.Complete(cmd, "interface", completeInterfaces)
	cmd.MarkFlagsOneRequired("to", "pcap")
	cmd.MarkFlagsRequiredTogether("from", "to")
	for _, described := range []string{"to", "protocol", "flags", "size", "vlan", "ttl"} {
		cmd.MarkFlagsMutuallyExclusive("pcap", described)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.run(cmd.Context(), e)
	}
	return cmd
}

// flags are those that describe a packet.
func (o *traceOptions) flags() *pflag.FlagSet {
	o.packet.Flags = frame.SYN
	flags := pflag.NewFlagSet("trace", pflag.ContinueOnError)
	flags.StringVar(&o.from, "from", "", "client's address and port")
	flags.StringVar(&o.to, "to", "", "VIP's address and port")
	flags.StringVar(&o.protocol, "protocol", "tcp", "tcp, udp or icmp (an echo request; needs no ports)")
	flags.Var(&o.packet.Flags, "flags", "TCP flags: some of fin,syn,rst,psh,ack,urg")
	flags.IntVar(&o.packet.Size, "size", 0, "length of the IP packet in bytes (default: the shortest)")
	flags.Uint16Var(&o.packet.VLAN, "vlan", 0, "802.1Q id (default: untagged)")
	flags.Uint8Var(&o.packet.TTL, "ttl", 64, "time to live, or hop limit")
	flags.StringVar(&o.device, "interface", "", "ingress interface (default: the first one of the agent)")
	return flags
}

func (o *traceOptions) run(ctx context.Context, e env) error {
	t := tracing{traceOptions: o, agent: control.Dial(o.socket), out: e.stdout, exits: map[string]int{}}
	if o.pcap != "" {
		return t.capture(ctx, e)
	}
	one, err := o.described()
	if err != nil {
		return cli.Usage(err)
	}
	if err := t.send(ctx, []traceInput{{title: frame.Summary(one), frame: one}}); err != nil {
		return err
	}
	return t.end()
}

// described is the frame that the flags describe.
func (o *traceOptions) described() (_ []byte, err error) {
	o.packet.Protocol = frame.Protocol(o.protocol)
	switch o.packet.Protocol {
	case frame.TCP, frame.UDP, frame.ICMP:
	default:
		return nil, fmt.Errorf("--protocol %s: want tcp, udp or icmp", o.protocol)
	}
	if o.packet.From, err = endpoint(o.from); err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	if o.packet.To, err = endpoint(o.to); err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	return o.packet.Build()
}

// endpoint reads an address with or without a port.
func endpoint(text string) (netip.AddrPort, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(address, 0), nil
	}
	return netip.ParseAddrPort(text)
}

// traceInput is a frame with the heading of its trace.
type traceInput struct {
	title string
	frame []byte
}

// tracing asks an agent and prints its answers: tables as they come, JSON and YAML as one
// list at the end.
type tracing struct {
	*traceOptions
	agent   *control.Client
	out     io.Writer
	answers []json.RawMessage
	exits   map[string]int
	traced  int
}

// capture traces a capture file, some packets at a time.
func (t *tracing) capture(ctx context.Context, e env) error {
	input := e.stdin
	if t.pcap != "-" {
		file, err := os.Open(t.pcap)
		if err != nil {
			return err
		}
		defer file.Close()
		input = file
	}
	packets, err := frame.NewCapture(input)
	if err != nil {
		return fmt.Errorf("%s: %w", t.pcap, err)
	}
	for number := 1; ; {
		batch, err := nextBatch(packets, &number)
		if err != nil {
			return fmt.Errorf("%s: packet %d: %w", t.pcap, number, err)
		}
		if len(batch) == 0 {
			return t.end()
		}
		if err := t.send(ctx, batch); err != nil {
			return err
		}
	}
}

// nextBatch reads as many packets as one request takes; none at the end of the
// capture. number is the position of the next packet in the capture.
func nextBatch(packets *frame.Capture, number *int) ([]traceInput, error) {
	var batch []traceInput
	for len(batch) < control.MaxTracePackets {
		packet, err := packets.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		title := fmt.Sprintf("%d at %s: %s", *number, packet.Time.Local().Format("15:04:05.000000"), frame.Summary(packet.Frame))
		batch = append(batch, traceInput{title, packet.Frame})
		*number++
	}
	return batch, nil
}

// send has some packets traced.
func (t *tracing) send(ctx context.Context, batch []traceInput) error {
	packets := make([]control.Packet, len(batch))
	for i, input := range batch {
		packets[i] = control.Packet{Interface: t.device, Frame: input.frame}
	}
	answer, err := t.agent.Traces(ctx, packets)
	if err != nil {
		return err
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(answer, &raw); err != nil {
		return fmt.Errorf("the agent's answer: %w", err)
	}
	if len(raw) != len(batch) {
		return fmt.Errorf("the agent's answer: %d traces of %d packets", len(raw), len(batch))
	}
	t.traced += len(raw)
	if !t.output.Table() {
		t.answers = append(t.answers, raw...)
		return nil
	}
	for i, text := range raw {
		if err := t.print(batch[i].title, text); err != nil {
			return err
		}
	}
	return nil
}

func (t *tracing) print(title string, answer json.RawMessage) error {
	var trace observe.Trace
	if err := json.Unmarshal(answer, &trace); err != nil {
		return fmt.Errorf("the agent's answer: %w", err)
	}
	t.exits[trace.Exit]++
	text := observe.FormatTrace(title, trace)
	if t.pcap != "" {
		text += "\n"
	}
	if _, err := io.WriteString(t.out, text); err != nil {
		return err
	}
	if t.pcap == "" && trace.Error != "" {
		return cli.ExitStatus(1)
	}
	return nil
}

// end prints the list, or how many packets of a capture took which exit.
func (t *tracing) end() error {
	if !t.output.Table() {
		return t.output.Print(t.out, t.answers)
	}
	if t.pcap == "" {
		return nil
	}
	_, err := io.WriteString(t.out, observe.FormatTraceSummary(t.traced, t.exits))
	return err
}
