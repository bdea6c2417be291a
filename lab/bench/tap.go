// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// tapFrame is how many bytes of a frame a tap reads: Ethernet, IP and TCP headers with options.
const tapFrame = 128

// tapBuffer is the socket's memory in bytes, for frames that arrive faster than they are read.
const tapBuffer = 16 << 20

// Tap calls seen with the first bytes of each frame that an interface of the calling thread's
// network namespace sends or receives, until stop is called. The bytes are valid during the call.
func Tap(device string, seen func(frame []byte)) (stop func() error, err error) {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("tap: %w", err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("tap: %w", err)
	}
	socket := os.NewFile(uintptr(fd), "tap")
	// Without the capability (a container) the memory stays as it is.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, tapBuffer)
	// Outgoing packets are copied only to sockets of all protocols.
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}); err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("tap on %s: %w", device, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buffer := make([]byte, tapFrame)
		for {
			n, err := socket.Read(buffer)
			if err != nil {
				return // closed
			}
			seen(buffer[:n])
		}
	}()
	return func() error {
		err := socket.Close()
		<-ended
		return err
	}, nil
}
