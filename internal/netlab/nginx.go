// SPDX-License-Identifier: Apache-2.0

package netlab

import "fmt"

// nginxConfig is the name of nginx's configuration file in a host's directory.
const nginxConfig = "nginx.conf"

// nginxText makes nginx answer every request on the port with the server's
// name, and one for /client with the client's address. All paths are relative to the host's directory; the temporary ones are
// never used, but nginx makes them. Connections are kept open for as many
// requests as a load generator may send.
func nginxText(name string, port uint16) string {
	return fmt.Sprintf(`daemon off;
user www-data;
worker_processes 1;
pid nginx.pid;
error_log stderr warn;
events {
  worker_connections 8192;
}
http {
  access_log off;
  keepalive_timeout 75s;
  keepalive_requests 100000000;
  client_body_temp_path tmp-body;
  proxy_temp_path tmp-proxy;
  fastcgi_temp_path tmp-fastcgi;
  uwsgi_temp_path tmp-uwsgi;
  scgi_temp_path tmp-scgi;
  default_type text/plain;
  server {
    listen %[2]d backlog=4096;
    listen [::]:%[2]d ipv6only=on backlog=4096;
    location = /client {
      return 200 "$remote_addr\n";
    }
    location / {
      return 200 "%[1]s\n";
    }
  }
}
`, name, port)
}

// nginx serves nginxText. It is told of its prefix, so that it doesn't look
// for anything in the machine's own nginx folders.
func nginx() Process {
	return Process{Name: "nginx", Args: []string{"nginx", "-p", ".", "-c", nginxConfig, "-e", "stderr"}}
}
