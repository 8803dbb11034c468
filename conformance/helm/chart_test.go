package helm

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"
)

// values are the settings with which each test renders the chart.
var values = map[string]string{
	"defaults": "{}",
	"one node": "{replicas: 1}",
	"running":  "{bootstrap: false, replicas: 5}",
	"TLS":      "{tls: {enabled: true, existingSecret: t}}",
	"TLS only": "{tls: {enabled: true, existingSecret: t, only: true, authClients: 'yes'}, backup: {enabled: true, to: 's3://b/d/'}, networkPolicy: {enabled: true}}",
	"everything": `
auth: {existingSecret: a}
peers: {existingSecret: p}
tls: {enabled: true, existingSecret: t, authClients: optional}
sentinel: {enabled: true}
cluster: {enabled: true}
settings: {lead-priority: 3, same-owner-nx: true, maxmemory: 100mb}
service: {type: LoadBalancer, annotations: {a: b}}
networkPolicy: {enabled: true, clients: [{podSelector: {matchLabels: {app: x}}}]}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
backup: {enabled: true, to: 's3://b/d/', existingSecret: s3, environment: {AWS_REGION: here}}
imagePullSecrets: [{name: pull}]
nodeSelector: {kubernetes.io/arch: amd64}
tolerations: [{key: k, operator: Exists}]
affinity: {nodeAffinity: {}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: k, whenUnsatisfiable: DoNotSchedule}]
podAnnotations: {a: b}
priorityClassName: high
persistence: {storageClass: fast, size: 20Gi}
`,
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(filepath.Join("..", "..", "deploy", "helm", "lockstep"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render renders the chart. It returns the objects, by kind and name, and the notes.
func render(t *testing.T, text string) (objects map[string]string, notes string, err error) {
	t.Helper()
	given, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c := load(t)
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "prod", Namespace: "locks", IsInstall: true, Revision: 1}, nil)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, "", err
	}
	objects = map[string]string{}
	for name, text := range files {
		if path.Base(name) == "NOTES.txt" {
			notes = text
			continue
		}
		for doc := range strings.SplitSeq(text, "\n---") {
			var head struct {
				Kind     string
				Metadata struct{ Name string }
			}
			if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
				return nil, "", fmt.Errorf("%s: %w\n%s", name, err, doc)
			}
			if head.Kind != "" {
				objects[head.Kind+" "+head.Metadata.Name] = doc
			}
		}
	}
	return objects, notes, nil
}

// decode reads an object into the type that Kubernetes has for it. It fails on a field that the type does not have.
func decode(doc string) (runtime.Object, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	object, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode([]byte(doc), nil, nil)
	return object, err
}

// TestObjects: with all values, each object is one that Kubernetes knows, and the pods are as restricted as its standard "restricted" wants.
func TestObjects(t *testing.T) {
	for name, text := range values {
		t.Run(name, func(t *testing.T) {
			objects, notes, err := render(t, text)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(notes, "prod-lockstep-0") {
				t.Errorf("notes: %s", notes)
			}
			for name, doc := range objects {
				if strings.HasPrefix(name, "ServiceMonitor ") {
					continue // of the Prometheus operator
				}
				object, err := decode(doc)
				if err != nil {
					t.Errorf("%s: %v\n%s", name, err, doc)
					continue
				}
				switch o := object.(type) {
				case *appsv1.StatefulSet:
					restricted(t, name, o.Spec.Template.Spec)
					portsAgree(t, o, objects)
				case *batchv1.CronJob:
					restricted(t, name, o.Spec.JobTemplate.Spec.Template.Spec)
				}
			}
			if _, is := objects["StatefulSet prod-lockstep"]; !is {
				t.Error("there is no StatefulSet")
			}
		})
	}
}

func restricted(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	s := pod.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Errorf("%s: the pod is not restricted: %+v", name, s)
	}
	for _, c := range pod.Containers {
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: the container %s is not restricted: %+v", name, c.Name, s)
		}
		if strings.HasSuffix(c.Image, ":latest") || !strings.Contains(c.Image, ":") {
			t.Errorf("%s: image %s", name, c.Image)
		}
		if c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s: no limit of memory", name)
		}
		volumes := map[string]bool{"data": true}
		for _, v := range pod.Volumes {
			volumes[v.Name] = true
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s: there is no volume %s", name, m.Name)
			}
		}
		for _, e := range c.Env {
			if word := strings.ToLower(e.Name); (strings.Contains(word, "pass") || strings.Contains(word, "secret")) && !strings.HasSuffix(word, "_file") {
				t.Errorf("%s: a secret is in the environment: %s", name, e.Name)
			}
		}
	}
}

// portsAgree checks that the services, the probes and the network policy name ports that the nodes have, and that the nodes listen there.
func portsAgree(t *testing.T, set *appsv1.StatefulSet, objects map[string]string) {
	t.Helper()
	c := set.Spec.Template.Spec.Containers[0]
	ports := map[string]int32{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	listens := map[string]bool{}
	for _, e := range c.Env {
		if strings.HasSuffix(e.Name, "_LISTEN") && e.Value != "" {
			listens[strings.TrimPrefix(e.Value, "0.0.0.0:")] = true
		}
	}
	for name, port := range ports {
		if !listens[fmt.Sprint(port)] {
			t.Errorf("nothing listens at the port %s, %d", name, port)
		}
	}
	if len(listens) != len(ports) {
		t.Errorf("listens %v, ports %v", listens, ports)
	}
	for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
		if _, is := ports[p.HTTPGet.Port.String()]; !is {
			t.Errorf("a probe asks the port %s", p.HTTPGet.Port.String())
		}
	}
	for name, doc := range objects {
		object, err := decode(doc)
		if err != nil {
			continue // TestObjects tells
		}
		switch o := object.(type) {
		case *corev1.Service:
			for _, p := range o.Spec.Ports {
				if ports[p.TargetPort.String()] != p.Port {
					t.Errorf("%s: %+v, the pods have %v", name, p, ports)
				}
			}
			for key, value := range o.Spec.Selector {
				if set.Spec.Template.Labels[key] != value {
					t.Errorf("%s selects %s=%s, which no pod has", name, key, value)
				}
			}
		case *networkingv1.NetworkPolicy:
			for _, rule := range o.Spec.Ingress {
				for _, p := range rule.Ports {
					if _, is := ports[p.Port.String()]; !is {
						t.Errorf("%s: port %s", name, p.Port.String())
					}
				}
			}
		}
	}
}

// TestSettings: a node takes the environment of the chart, on each pod, with all values: no variable is unknown, and none contradicts another.
func TestSettings(t *testing.T) {
	program := filepath.Join(t.TempDir(), "lockstep")
	if out, err := exec.Command("go", "-C", filepath.Join("..", ".."), "build", "-o", program, "./cmd/lockstep").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := t.TempDir()
	for _, name := range []string{"password", "peers"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certificate(t, dir)
	for name, text := range values {
		objects, _, err := render(t, text)
		if err != nil {
			t.Fatal(err)
		}
		object, err := decode(objects["StatefulSet prod-lockstep"])
		if err != nil {
			t.Fatal(err)
		}
		set := object.(*appsv1.StatefulSet)
		for i := range *set.Spec.Replicas {
			id := fmt.Sprintf("prod-lockstep-%d", i)
			cmd := exec.Command(program, append(slices.Clone(set.Spec.Template.Spec.Containers[0].Args), "--config-check")...)
			for _, e := range set.Spec.Template.Spec.Containers[0].Env {
				value := strings.NewReplacer("$(LOCKSTEP_ID)", id, "/secrets/", dir+"/", "/tls/", dir+"/", "/data", dir+"/data").Replace(e.Value)
				if e.ValueFrom != nil {
					value = id
				}
				cmd.Env = append(cmd.Env, e.Name+"="+value)
			}
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "the configuration is right") {
				t.Errorf("%s: %s: %v\n%s\n%s", name, id, err, out, strings.Join(cmd.Env, "\n"))
			}
		}
	}
}

// certificate makes tls.crt, tls.key and ca.crt.
func certificate(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command("go", "run", filepath.Join(strings.TrimSpace(goroot(t)), "src", "crypto", "tls", "generate_cert.go"), "--host", "localhost", "--ca", "--ecdsa-curve", "P256")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pem, err := os.ReadFile(filepath.Join(dir, "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tls.crt", "ca.crt"} {
		if err := os.WriteFile(filepath.Join(dir, name), pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(dir, "key.pem"), filepath.Join(dir, "tls.key")); err != nil {
		t.Fatal(err)
	}
}

func goroot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestValuesAreChecked: a value that is wrong, or unknown, is refused by name.
func TestValuesAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"{replicas: 2}":                           "replicas",
		"{replica: 3}":                            "replica",
		"{image: {repository: x, tag: latest}}":   "tag",
		"{tls: {enabled: true}}":                  "existingSecret",
		"{backup: {enabled: true, to: /backups}}": "to",
		"{settings: {Lead_Priority: 1}}":          "Lead_Priority",
	} {
		if _, _, err := render(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %s", text, err, want)
		}
	}
}

// TestVersions: the chart installs the program of the repository.
func TestVersions(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("..", "..", "cmd", "lockstep", "version.go"))
	if err != nil {
		t.Fatal(err)
	}
	if version := load(t).Metadata.AppVersion; !strings.Contains(string(source), fmt.Sprintf("const version = %q", version)) && !strings.Contains(string(source), fmt.Sprintf("const version = %q", version+"+dev")) {
		t.Errorf("the chart's appVersion is %s", version)
	}
}
