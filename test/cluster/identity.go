// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// adminGroup is the group that RBAC lets do everything.
const adminGroup = "system:masters"

// Config is an administrator's configuration. Clients made of it aren't slowed
// down.
func (a *API) Config() *rest.Config { return rest.CopyConfig(a.admin) }

// Clients are an administrator's.
func (a *API) Clients() *kubernetes.Clientset { return a.clients }

// As is the configuration of a user with a client certificate, whose rights RBAC sets.
func (a *API) As(t testing.TB, user string, groups ...string) *rest.Config {
	t.Helper()
	config, err := a.as(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func (a *API) as(user string, groups ...string) (*rest.Config, error) {
	p, err := a.authority.client(user, groups...)
	if err != nil {
		return nil, err
	}
	config := a.anonymous()
	config.CertData, config.KeyData = p.certificate, p.key
	return config, nil
}

// AsServiceAccount is the configuration of a service account, which is there, by a
// token as pods have one.
func (a *API) AsServiceAccount(t testing.TB, namespace, name string) *rest.Config {
	t.Helper()
	return a.withToken(t, namespace, name, nil)
}

// AsPod is the configuration of a service account by the token that a pod of it has, which also
// names the pod and its node.
func (a *API) AsPod(t testing.TB, namespace, account, pod string) *rest.Config {
	t.Helper()
	return a.withToken(t, namespace, account, &authentication.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod})
}

func (a *API) withToken(t testing.TB, namespace, name string, bound *authentication.BoundObjectReference) *rest.Config {
	t.Helper()
	request, err := a.clients.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name,
		&authentication.TokenRequest{Spec: authentication.TokenRequestSpec{BoundObjectRef: bound}}, meta.CreateOptions{})
	if err != nil {
		t.Fatalf("token of service account %s/%s: %v", namespace, name, err)
	}
	config := a.anonymous()
	config.BearerToken = request.Status.Token
	return config
}

// anonymous is a configuration without credentials.
func (a *API) anonymous() *rest.Config {
	const unlimited = -1
	return &rest.Config{
		Host:            "https://" + a.endpoint.String(),
		TLSClientConfig: rest.TLSClientConfig{CAData: a.authority.pem()},
		QPS:             unlimited,
		Dial:            a.dial,
	}
}

// Sender returns a function that sends requests about Fairlead's objects as a user, and returns the
// answers. The path begins with the resource.
func (a *API) Sender(t testing.TB, user *rest.Config) func(method, path, body string) string {
	t.Helper()
	client, err := rest.HTTPClientFor(user)
	if err != nil {
		t.Fatal(err)
	}
	return func(method, path, body string) string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, user.Host+"/apis/fairlead.io/v1alpha1/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return string(answer)
	}
}

// Kubeconfig writes the configuration into a file, for programs, and returns its
// path. They have to run where the API server can be reached.
func (a *API) Kubeconfig(t testing.TB, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := writeKubeconfig(path, config); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeKubeconfig(path string, config *rest.Config) error {
	const name = "test"
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name
	return clientcmd.WriteToFile(*file, path)
}

// Kubectl runs kubectl as an administrator and returns its output; the test
// fails if kubectl does.
func (a *API) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := a.kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Apply gives manifests in YAML to kubectl apply.
func (a *API) Apply(t testing.TB, manifests string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(path, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	a.Kubectl(t, "apply", "-f", path)
}

// Define makes the kinds of objects that the files of a folder define, and returns when
// the API server has them.
func (a *API) Define(ctx context.Context, dir string) error {
	if _, err := a.kubectl(ctx, "apply", "-f", dir); err != nil {
		return err
	}
	_, err := a.kubectl(ctx, "wait", "--for=condition=Established", "crd", "--all")
	return err
}

// AdminKubeconfig is the path of a file by which programs are an administrator.
func (a *API) AdminKubeconfig() (string, error) {
	path := filepath.Join(a.dir, "admin.kubeconfig")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := writeKubeconfig(path, a.admin); err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	return path, nil
}

func (a *API) kubectl(ctx context.Context, args ...string) (string, error) {
	path, err := a.AdminKubeconfig()
	if err != nil {
		return "", err
	}
	return a.machine.Run(ctx, append([]string{a.binary, "kubectl", "--kubeconfig", path}, args...)...)
}
