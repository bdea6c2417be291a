// SPDX-License-Identifier: Apache-2.0

// Package labs holds the tests that test/guest runs in guest kernels with programs of the
// distribution: agents balance what curl asks of nginx.
package labs
