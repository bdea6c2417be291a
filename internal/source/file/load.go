// SPDX-License-Identifier: Apache-2.0

package file

import (
	"fmt"
	"io"
	"os"

	"fairlead.io/fairlead/internal/dataplane"
)

// Load reads and parses a configuration file once.
func Load(path string, limits dataplane.Limits) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, limits)
}

// LoadReflector reads and parses a reflector's configuration file once.
func LoadReflector(path string) (*Reflector, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return ParseReflector(path, data)
}

// readFile reads a regular file and no more than Parse takes.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxSize+1))
}
