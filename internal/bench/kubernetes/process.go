// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time in /proc (USER_HZ, proc_pid_stat(5)).
const tick = time.Second / 100

const kib, mib = 1 << 10, 1 << 20

// pid is that of a process of the balancer; 0 if it was never started.
func (s *site) pid(process string) int {
	for _, p := range s.State().Host(balancerHost).Processes {
		if p.Name == process {
			return p.PID
		}
	}
	return 0
}

// running returns an error with the end of its log if a process has ended.
func (s *site) running(process string) error {
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", s.pid(process))); err == nil {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(s.host.Directory, process+".log"))
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return errors.Join(fmt.Errorf("%s has ended: %s", process, lines[len(lines)-1]), err)
}

// busy is the processor time that a process has used.
func (s *site) busy(process string) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid(process)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", process, err)
	}
	// Behind the name, which may hold blanks and parentheses, the third field comes.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const userField, systemField = 14 - 3, 15 - 3
	if len(fields) <= systemField {
		return 0, fmt.Errorf("%s: %d fields of stat", process, len(fields))
	}
	var ticks int64
	for _, field := range []string{fields[userField], fields[systemField]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: stat: %w", process, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// resident is the memory of a process in bytes, of pages that several processes have
// in common the share that is its own (proc_pid_smaps(5), Pss).
func (s *site) resident(process string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", s.pid(process)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", process, err)
	}
	size, err := valueOf(string(text), "Pss:")
	if err != nil {
		return 0, fmt.Errorf("%s: smaps: %w", process, err)
	}
	return size * kib, nil
}

// heap is what a process's objects take, in bytes, as its metrics have it.
func (s *site) heap(ctx context.Context, process, page string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+page+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := s.page.Do(request)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", process, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("%s: metrics: %w", process, err)
	}
	size, err := valueOf(string(text), "go_memstats_heap_inuse_bytes")
	if err != nil {
		return 0, fmt.Errorf("%s: metrics: %w", process, err)
	}
	return size, nil
}

// valueOf reads the number behind the first word of a line.
func valueOf(text, word string) (float64, error) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == word {
			return strconv.ParseFloat(fields[1], 64)
		}
	}
	return 0, fmt.Errorf("no %s", word)
}
