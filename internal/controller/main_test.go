// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Client libraries log to the process, which can't say whose test it was.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}
