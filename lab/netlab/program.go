// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// install is how programs of labs and benches are installed: the Debian package, or a target
// of make.
var install = map[string]string{
	"bird":     "Debian package bird2",
	"bridge":   "Debian package iproute2",
	"exabgp":   "Debian package exabgp",
	fairlab:    "make build",
	fairlead:   "make build",
	"gobgpd":   "make gobgpd",
	"haproxy":  "Debian package haproxy",
	"ip":       "Debian package iproute2",
	"iptables": "Debian package iptables",
	"mariadbd": "Debian package mariadb-server",
	"nft":      "Debian package nftables",
	"nginx":    "Debian package nginx",
	"nstat":    "Debian package iproute2",
	"tc":       "Debian package iproute2",
	"vtysh":    "Debian package frr",
	"wrk":      "Debian package wrk",
}

// CheckPrograms returns an error that names all programs that aren't installed, each with its
// package. Labs check their hosts' programs; a bench that builds several labs, or runs programs
// itself, checks all of them before it builds the first one.
func CheckPrograms(programs ...string) error {
	var missing []string
	for _, program := range programs {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		name, source := program, install[filepath.Base(program)]
		if strings.HasPrefix(program, frrFolder) {
			source = "Debian package frr"
		}
		if source != "" {
			name += " (" + source + ")"
		}
		if !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not installed: %s", strings.Join(missing, ", "))
	}
	return nil
}

// Programs are those that Up and the hosts run, by name or path.
func (t *Topology) Programs() (programs []string) {
	programs = []string{"ip"}
	for _, h := range t.Hosts {
		if h.Rules != "" {
			programs = append(programs, "nft")
		}
		if len(h.forwarding()) > 0 {
			programs = append(programs, "bridge")
		}
		for _, p := range h.Processes {
			programs = append(programs, p.program())
		}
	}
	return programs
}

// program is the one that the process becomes: afterZebra and realtime have a shell start it.
func (p Process) program() string {
	args := p.Args
	for len(args) > 4 && args[0] == "sh" && args[1] == "-c" && args[3] == "sh" {
		args = args[4:]
	}
	return args[0]
}
