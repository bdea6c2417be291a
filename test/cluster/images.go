// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os/exec"
	"testing"
)

// Names of images that tests have in common.
const (
	// NginxName is the name of NginxImage.
	NginxName  = "localhost/nginx:1"
	pauseImage = "localhost/pause:1"
)

// NginxImage answers requests at port 80 of IPv4 and IPv6 with the name of its pod.
// Asked to end it finishes open requests.
func NginxImage(t testing.TB) string {
	t.Helper()
	const config = "/etc/nginx.conf"
	nginx := lookPath(t, "nginx")
	return Image{
		Name:     NginxName,
		Programs: []string{nginx},
		Files: map[string]string{
			config:                 nginxText,
			"/etc/passwd":          "root:x:0:0:root:/:/\n",
			"/etc/group":           "root:x:0:\n",
			"/var/log/nginx/.keep": "", // of its own log, until it has read where errors go
		},
		Entrypoint: []string{nginx, "-c", config},
		StopSignal: "SIGQUIT",
	}.Build(t)
}

const nginxText = `daemon off;
user root;
worker_processes 1;
pid /tmp/nginx.pid;
error_log stderr warn;
events {
  worker_connections 1024;
}
http {
  access_log off;
  client_body_temp_path /tmp/body;
  proxy_temp_path /tmp/proxy;
  fastcgi_temp_path /tmp/fastcgi;
  uwsgi_temp_path /tmp/uwsgi;
  scgi_temp_path /tmp/scgi;
  default_type text/plain;
  server {
    listen 80;
    listen [::]:80 ipv6only=on;
    location / {
      return 200 "$hostname\n";
    }
  }
}
`

// buildPause builds the program that holds the namespaces of every pod.
func buildPause(t testing.TB) string {
	t.Helper()
	busybox := lookPath(t, "busybox")
	const longTime = "2147483647" // seconds
	return Image{
		Name: pauseImage, Programs: []string{busybox}, Entrypoint: []string{busybox, "sleep", longTime},
	}.Build(t)
}

func lookPath(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
