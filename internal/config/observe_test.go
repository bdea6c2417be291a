// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/config"
)

func TestObserve(t *testing.T) {
	const rest = "node: {name: lb1, interfaces: [eth0]}\nservices: []\n"
	for text, want := range map[string]config.Observe{
		"":                                {Listen: netip.MustParseAddrPort("127.0.0.1:9571")},
		"observe: {}\n":                   {Listen: netip.MustParseAddrPort("127.0.0.1:9571")},
		"observe: {listen: none}\n":       {Explicit: true},
		"observe: {listen: 0.0.0.0:80}\n": {Listen: netip.MustParseAddrPort("0.0.0.0:80"), Explicit: true},
		"observe: {listen: '[::1]:0'}\n":  {Listen: netip.MustParseAddrPort("[::1]:0"), Explicit: true},
	} {
		conf, err := config.Parse("f", rest+text, limits())
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if conf.Observe != want {
			t.Errorf("%q: have %+v, want %+v", text, conf.Observe, want)
		}
	}
	for _, listen := range []string{
		"127.0.0.1", ":9571", "localhost:9571", "127.0.0.1:65536", "9571", "[]", "''", "'[::ffff:127.0.0.1]:80'", "224.0.0.1:80",
	} {
		_, err := config.Parse("f", rest+"observe: {listen: "+listen+"}\n", limits())
		if err == nil || !strings.HasPrefix(err.Error(), "f:3:19: observe.listen: ") || !strings.Contains(err.Error(), "127.0.0.1:9571, or none") {
			t.Errorf("%s: error %v, want one that says what is wanted", listen, err)
		}
	}
}
