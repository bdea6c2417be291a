// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// settingsFolder is the folder on a node's disk with its programs' configuration.
const settingsFolder = "lib/node"

// Files of that folder.
const (
	containerdConfig  = "containerd.toml"
	kubeletConfig     = "kubelet.yaml"
	kubeletKubeconfig = "kubelet.kubeconfig"
	proxyConfig       = "kube-proxy.yaml"
	proxyKubeconfig   = "kube-proxy.kubeconfig"
	policyKubeconfig  = "kube-router.kubeconfig"
	authorityFile     = "ca.crt"
	// networkFolder has the configuration of pods' networks.
	networkFolder = "net.d"
)

const containerdSocket = "/run/containerd/containerd.sock"

// inNode is the path of a file of the folder as the node's programs name it.
func inNode(name string) string { return filepath.Join("/var", settingsFolder, name) }

// furnish makes the node's disk with the settings of its programs.
func (n *Node) furnish() error {
	for _, dir := range []string{"log", "tmp", filepath.Join(settingsFolder, networkFolder)} {
		if err := os.MkdirAll(filepath.Join(n.disk(), dir), 0o755); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{"run": "/run", "lock": "/run/lock"} {
		if err := os.Symlink(to, filepath.Join(n.disk(), name)); err != nil {
			return err
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		authorityFile:    string(n.cluster.authority.pem()),
		containerdConfig: containerdText(runc),
		kubeletConfig:    n.kubeletText(),
		proxyConfig:      n.proxyText(),
	} {
		if err := n.write(name, text); err != nil {
			return err
		}
	}
	if err := n.writeIdentity(kubeletKubeconfig, "system:node:"+n.name, "system:nodes"); err != nil {
		return err
	}
	return n.writeIdentity(proxyKubeconfig, "system:kube-proxy")
}

// write makes a file of the folder, atomically for programs that watch it.
func (n *Node) write(name, text string) error {
	path := filepath.Join(n.disk(), settingsFolder, name)
	part := path + ".part"
	if err := os.WriteFile(part, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// writeIdentity makes a file of the folder by which a program of the node is known.
func (n *Node) writeIdentity(name, user string, groups ...string) error {
	config, err := n.cluster.as(user, groups...)
	if err != nil {
		return err
	}
	return writeKubeconfig(filepath.Join(n.disk(), settingsFolder, name), config)
}

// containerdText: without CAP_SYS_RESOURCE no process can be made less likely to be killed
// when memory is short than the test itself.
func containerdText(runc string) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = %q
`, containerdSocket, pauseImage, inNode(networkFolder), runc)
}

// kubeletText: the kubelet sends heartbeats often, so that the loss of a node is detected
// soon. Images are never collected as garbage, as they can't be pulled again.
func (n *Node) kubeletText() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://%s
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
maxOpenFiles: 20000
resolvConf: ""
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
healthzBindAddress: 127.0.0.1
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: %.0f
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 100Mi, nodefs.available: "0%%", imagefs.available: "0%%", nodefs.inodesFree: "0%%"}
`, n.internal()[0], inNode(authorityFile), containerdSocket, n.cluster.options.GracePeriod.Seconds())
}

// proxyText: the limits of connection tracking are the whole kernel's and are left
// alone.
func (n *Node) proxyText() string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %q
hostnameOverride: %s
clientConnection: {kubeconfig: %s}
clusterCIDR: %s
bindAddress: 0.0.0.0
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, n.cluster.options.KubeProxy, n.name, inNode(proxyKubeconfig), podNetworks)
}

// podNetworkText is for containerd: every pod is at the other end of a link of its
// own, by which it goes everywhere.
func podNetworkText(ipv4, ipv6 string) string {
	return fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500, "ipam": {
    "type": "host-local", "dataDir": "/run/pod-addresses",
    "ranges": [[{"subnet": %q}], [{"subnet": %q}]],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`, ipv4, ipv6)
}
