// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"path/filepath"
)

// Networks of Services, IPv4 and then IPv6, and the address in it that Kubernetes
// gives the API server's own.
const serviceNetworks = "10.96.0.0/16,fd96::/112"

var serviceOfAPI = netip.AddrFrom4([4]byte{10, 96, 0, 1})

// etcdArgs: a throwaway etcd doesn't wait for the disk. It has no peers, but insists
// on an address for them: port 0 gives it one.
func (a *API) etcdArgs() []string {
	client := "http://" + a.etcd.String()
	peer := "http://" + netip.AddrPortFrom(a.etcd.Addr(), 0).String()
	return []string{
		"etcd", "--data-dir", filepath.Join(a.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
	}
}

func (a *API) serverArgs() []string {
	p := a.pki()
	return append([]string{
		a.binary, "kube-apiserver",
		"--etcd-servers=http://" + a.etcd.String(),
		"--bind-address=" + a.endpoint.Addr().String(),
		"--advertise-address=" + a.endpoint.Addr().String(),
		"--secure-port=" + port(a.endpoint),
		"--cert-dir=" + filepath.Join(a.dir, "kube-apiserver"),
		"--tls-cert-file=" + p.path("apiserver.crt"),
		"--tls-private-key-file=" + p.path("apiserver.key"),
		"--client-ca-file=" + p.path("ca.crt"),
		"--kubelet-client-certificate=" + p.path("kubelet-client.crt"),
		"--kubelet-client-key=" + p.path("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-key-file=" + p.path("sa.key"),
		"--service-account-signing-key-file=" + p.path("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-cluster-ip-range=" + serviceNetworks,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
	}, a.flags...)
}

// controllerArgs: each controller has its own rights, as in real clusters.
func (a *API) controllerArgs() ([]string, error) {
	kubeconfig, err := a.kubeconfig("system:kube-controller-manager")
	p := a.pki()
	return []string{
		a.binary, "kube-controller-manager",
		"--kubeconfig=" + kubeconfig,
		"--service-account-private-key-file=" + p.path("sa.key"),
		"--root-ca-file=" + p.path("ca.crt"),
		"--use-service-account-credentials=true",
		"--leader-elect=false",
		"--secure-port=0",
		"--cert-dir=" + filepath.Join(a.dir, "kube-controller-manager"),
		"--service-cluster-ip-range=" + serviceNetworks,
	}, err
}
