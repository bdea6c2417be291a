// SPDX-License-Identifier: Apache-2.0

// Command whoami answers each request at port 8080, over TCP and UDP, with a line: the name
// of its host, and the address and port of the client. "whoami URL" requests a page itself
// and prints it. Pods of end-to-end tests run it.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
)

const address = "[::]:8080"

func main() {
	if len(os.Args) > 1 {
		if err := show(os.Args[1]); err != nil {
			log.Fatal(err)
		}
		return
	}
	name, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	datagrams, err := net.ListenPacket("udp", address)
	if err != nil {
		log.Fatal(err)
	}
	connections, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	answer := func(asker net.Addr) []byte { return fmt.Appendf(nil, "%s %s\n", name, asker) }
	go func() {
		buffer := make([]byte, 1500)
		for {
			_, asker, err := datagrams.ReadFrom(buffer)
			if err != nil {
				log.Fatal(err)
			}
			_, _ = datagrams.WriteTo(answer(asker), asker) // the client times out otherwise
		}
	}()
	for {
		c, err := connections.Accept()
		if err != nil {
			log.Fatal(err)
		}
		_, _ = c.Write(answer(c.RemoteAddr()))
		c.Close()
	}
}

// show prints a page.
func show(url string) error {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}
