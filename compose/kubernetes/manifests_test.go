// SPDX-License-Identifier: MIT

// Package kubernetes has no code. Its test decodes the manifests into the types of the Kubernetes API.
package kubernetes

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of a file, by kind.
type manifests struct {
	config    core.ConfigMap
	migrate   batch.Job
	serve     apps.Deployment
	service   core.Service
	budget    policy.PodDisruptionBudget
	sweep     batch.CronJob
	decoded   []string
	unchecked []string // objects of other kinds
}

// decode is strict: an unknown or a double field is an error.
func decode(text []byte) (m manifests, err error) {
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return m, err
		}
		name := kind.APIVersion + " " + kind.Kind
		object, known := map[string]any{
			"v1 ConfigMap": &m.config, "batch/v1 Job": &m.migrate, "apps/v1 Deployment": &m.serve, "v1 Service": &m.service,
			"policy/v1 PodDisruptionBudget": &m.budget, "batch/v1 CronJob": &m.sweep,
		}[name]
		if !known || slices.Contains(m.decoded, name) {
			m.unchecked = append(m.unchecked, name)
			continue
		}
		m.decoded = append(m.decoded, name)
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			return m, fmt.Errorf("%s: %w", name, err)
		}
	}
	return m, nil
}

// check returns what an API server or a cluster would refuse or never start.
func (m manifests) check() (wrong []string) {
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if len(m.decoded) != 6 || len(m.unchecked) > 0 {
		note("decoded %v, not %v", m.decoded, m.unchecked)
		return wrong
	}
	for name, pod := range map[string]core.PodTemplateSpec{
		"migrate": m.migrate.Spec.Template, "serve": m.serve.Spec.Template, "batch": m.sweep.Spec.JobTemplate.Spec.Template,
	} {
		if len(pod.Spec.Containers) != 1 || !slices.Equal(pod.Spec.Containers[0].Args, []string{name}) {
			note("%s: containers %v", name, pod.Spec.Containers)
			continue
		}
		for _, problem := range m.checkPod(pod.Spec, pod.Spec.Containers[0]) {
			note("%s: %s", name, problem)
		}
		if restarts := pod.Spec.RestartPolicy; (name == "serve") != (restarts == "") {
			note("%s: restart policy %q", name, restarts)
		}
	}
	pods := labels.Set(m.serve.Spec.Template.Labels)
	for name, selector := range map[string]map[string]string{
		"Deployment": m.serve.Spec.Selector.MatchLabels, "Service": m.service.Spec.Selector, "PodDisruptionBudget": m.budget.Spec.Selector.MatchLabels,
	} {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(pods) {
			note("%s selects %v, the replicas are %v", name, selector, pods)
		}
		for _, other := range []map[string]string{m.migrate.Spec.Template.Labels, m.sweep.Spec.JobTemplate.Spec.Template.Labels} {
			if labels.SelectorFromSet(selector).Matches(labels.Set(other)) {
				note("%s selects %v too", name, other)
			}
		}
	}
	return append(wrong, m.checkReplicas()...)
}

// checkPod requires settings, limits, and no right that the program does not need.
func (m manifests) checkPod(pod core.PodSpec, c core.Container) (wrong []string) {
	if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 || s.SeccompProfile == nil {
		wrong = append(wrong, "may run as root, or without seccomp")
	}
	if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil ||
		*s.AllowPrivilegeEscalation || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
		wrong = append(wrong, "may write to its image, or gain rights")
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		wrong = append(wrong, "has a token of the API server")
	}
	if len(c.EnvFrom) != 2 || c.EnvFrom[0].ConfigMapRef == nil || c.EnvFrom[0].ConfigMapRef.Name != m.config.Name || c.EnvFrom[1].SecretRef == nil {
		wrong = append(wrong, "lacks the settings or the secret")
	}
	if c.Resources.Limits.Memory().IsZero() || c.Resources.Limits.Memory().Cmp(*c.Resources.Requests.Memory()) < 0 || c.Resources.Requests.Cpu().IsZero() {
		wrong = append(wrong, "has no limits, or requests more than its limits")
	}
	return wrong
}

// checkReplicas requires that a replica gets requests when it is ready, and time to finish them.
func (m manifests) checkReplicas() (wrong []string) {
	c := m.serve.Spec.Template.Spec.Containers[0]
	ports := map[string]int32{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for setting, port := range map[string]string{"SHOP_LISTEN": "http", "SHOP_METRICS_LISTEN": "metrics"} {
		if want := fmt.Sprintf("0.0.0.0:%d", ports[port]); m.config.Data[setting] != want {
			wrong = append(wrong, setting+" is "+m.config.Data[setting]+", the port is "+want)
		}
	}
	for path, probe := range map[string]*core.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || ports[probe.HTTPGet.Port.StrVal] == 0 {
			wrong = append(wrong, "the probe of "+path+" requests something else")
		}
	}
	if p := m.service.Spec.Ports; len(p) != 1 || ports[p[0].TargetPort.StrVal] == 0 {
		wrong = append(wrong, "the service leads to no port of the replicas")
	}
	if r, least := m.serve.Spec.Replicas, m.budget.Spec.MinAvailable; r == nil || least == nil || int32(least.IntValue()) >= *r || least.IntValue() < 1 {
		wrong = append(wrong, "the budget allows no eviction, or all")
	}
	if grace := m.serve.Spec.Template.Spec.TerminationGracePeriodSeconds; grace == nil || *grace < 5+10+1 { // delay, shutdown, cut
		wrong = append(wrong, "a replica is killed before it has drained")
	}
	return wrong
}

func TestManifests_AreAccepted(t *testing.T) {
	text, err := os.ReadFile("shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range m.check() {
		t.Error(wrong)
	}
}

// The negative control: each of these mistakes must be found.
func TestManifests_MistakesAreFound(t *testing.T) {
	text, err := os.ReadFile("shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ right, wrong string }{
		{"minAvailable: 2", "minAvailabel: 2"},
		{"minAvailable: 2", "minAvailable: 3"},
		{"memory: 128Mi", "memory: 128 megabytes"},
		{"memory: 128Mi", "memory: 32Mi"},
		{"policy/v1", "policy/v1beta1"},
		{"selector: {app: shop, part: serve}", "selector: {app: shop}"},
		{"selector: {matchLabels: {app: shop, part: serve}}", "selector: {matchLabels: {app: shop, part: server}}"},
		{"runAsNonRoot: true", "runAsNonRoot: false"},
		{"readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"},
		{"httpGet: {path: /readyz, port: http}", "httpGet: {path: /readyz, port: https}"},
		{"targetPort: http", "targetPort: web"},
		{"containerPort: 9090", "containerPort: 9091"},
		{"configMapRef: {name: shop}", "configMapRef: {name: shops}"},
		{"terminationGracePeriodSeconds: 20", "terminationGracePeriodSeconds: 10"},
		{"restartPolicy: Never", ""},
		{"args: [batch]", "args: [sweep]"},
	} {
		changed := strings.Replace(string(text), c.right, c.wrong, 1)
		if changed == string(text) {
			t.Errorf("%q is not in the file", c.right)
			continue
		}
		if m, err := decode([]byte(changed)); err == nil && len(m.check()) == 0 {
			t.Errorf("%q instead of %q was not found", c.wrong, c.right)
		}
	}
}
