// SPDX-License-Identifier: Apache-2.0

package netlab

// reflector draws the route reflector.
func (s *site) reflector(*drawing) {}
