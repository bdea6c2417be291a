// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// The chart's labels of agents' pods, and the name of the container.
const (
	selector  = "app.kubernetes.io/name=fairlead,app.kubernetes.io/component=agent"
	container = "agent"
)

// Agent is the agent of a node.
type Agent struct {
	// Node is the node's name; "-" of a pod without one.
	Node string
	pod  string
	// err is why no command can run there.
	err error
}

// Agents returns the agents of all nodes, or of those that are named, sorted by node. A node
// whose agent isn't running is among them. It is an error if there is none, or none of a
// node that is named.
func (c *Client) Agents(ctx context.Context, nodes ...string) ([]Agent, error) {
	list := c.command(ctx, "get", "pods", "--selector="+selector, "--output=json")
	list.Stdin, list.Stderr = c.Stdin, c.Stderr
	text, err := output(ctx, list)
	if err != nil {
		return nil, fmt.Errorf("kubectl get pods: %w", err)
	}
	var pods struct {
		Items []pod `json:"items"`
	}
	if err := json.Unmarshal(text, &pods); err != nil {
		return nil, fmt.Errorf("kubectl get pods: %w", err)
	}
	agents := agentsOf(pods.Items)
	if len(agents) == 0 {
		return nil, fmt.Errorf("namespace %s has no agents", c.Namespace)
	}
	for _, name := range nodes {
		if !slices.ContainsFunc(agents, func(a Agent) bool { return a.Node == name }) {
			return nil, fmt.Errorf("node %s has no agent in namespace %s", name, c.Namespace)
		}
	}
	if len(nodes) > 0 {
		agents = slices.DeleteFunc(agents, func(a Agent) bool { return !slices.Contains(nodes, a.Node) })
	}
	return agents, nil
}

// pod has the fields of a core/v1 Pod that matter here.
type pod struct {
	Metadata struct {
		Name              string `json:"name"`
		DeletionTimestamp string `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase             string `json:"phase"`
		ContainerStatuses []struct {
			Name  string `json:"name"`
			State struct {
				Running    *struct{} `json:"running"`
				Waiting    state     `json:"waiting"`
				Terminated state     `json:"terminated"`
			} `json:"state"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

type state struct {
	Reason string `json:"reason"`
}

// problem is why no command can run in the pod; empty if one can. Readiness doesn't matter:
// the agent of a drained node isn't ready.
func (p pod) problem() string {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name != container {
			continue
		}
		if c.State.Running != nil {
			return ""
		}
		return cmp.Or(c.State.Waiting.Reason, c.State.Terminated.Reason, p.Status.Phase)
	}
	return cmp.Or(p.Status.Phase, "no status")
}

// compare orders pods by node; of one node the pod to be used is first.
func (p pod) compare(o pod) int {
	rank := func(p pod) int {
		switch {
		case p.problem() != "":
			return 2
		case p.Metadata.DeletionTimestamp != "":
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(p.Spec.NodeName, o.Spec.NodeName), cmp.Compare(rank(p), rank(o)), cmp.Compare(p.Metadata.Name, o.Metadata.Name))
}

// agentsOf returns an agent for each node, and for each pod without one.
func agentsOf(pods []pod) []Agent {
	slices.SortFunc(pods, pod.compare)
	var agents []Agent
	for _, p := range pods {
		a := Agent{Node: cmp.Or(p.Spec.NodeName, "-"), pod: p.Metadata.Name}
		if last := len(agents) - 1; p.Spec.NodeName != "" && last >= 0 && agents[last].Node == a.Node {
			continue
		}
		if problem := p.problem(); problem != "" {
			a.err = fmt.Errorf("pod %s: %s", a.pod, problem)
		}
		agents = append(agents, a)
	}
	return agents
}

// Answer is the output of a command on a node.
type Answer struct {
	Node   string
	Output []byte
	// Err is why there is no output.
	Err error
}

// Run runs a command of fairlead on agents, some at the same time, and returns the
// output of each, in their order.
func Run(ctx context.Context, c *Client, agents []Agent, line ...string) []Answer {
	answers := make([]Answer, len(agents))
	var all errgroup.Group
	all.SetLimit(concurrent)
	for i, a := range agents {
		all.Go(func() error {
			output, err := c.run(ctx, a, line)
			answers[i] = Answer{a.Node, output, err}
			return nil
		})
	}
	_ = all.Wait() // each node has its own error
	return answers
}

func (c *Client) run(ctx context.Context, a Agent, line []string) ([]byte, error) {
	if a.err != nil {
		return nil, a.err
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("pod %s: timed out after %s", a.pod, c.Timeout))
		defer cancel()
	}
	// The kind before the name, and the dashes before the command, keep both from being
	// read as flags.
	args := append([]string{"exec", "--container=" + container, "pod/" + a.pod, "--", "fairlead"}, line...)
	return output(ctx, c.command(ctx, args...))
}
