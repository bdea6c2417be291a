// SPDX-License-Identifier: Apache-2.0

package cluster

// Dir is where the cluster's files are, after which its control groups are named.
func (c *Cluster) Dir() string { return c.dir }

// Sweep removes what killed runs left, as every new cluster does first.
func Sweep() error { return sweep() }
