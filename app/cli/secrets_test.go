package cli_test

import (
	"strings"
	"testing"

	"cachelab/app/cli"
	"cachelab/telemetry/otlptest"
)

// Wherever a URL with a password lands, right or wrong, it is not repeated.
func TestNoOutputHoldsAPassword(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"fixed", "--redis", "redis://user:s3cret@127.0.0.1:1"},
		{"fixed", "--redis", "redis://user:s3cret"},
		{"fixed", "--redis", "redis://user:s3cret,localhost:7110"},
		{"fixed", "--redis", "redis://localhost:7110?password=s3cret"},
		{"fixed", "--redis", "redis://user:s3cret@host?password=s3cret"},
		{"fixed", "--redis", "redis:user:s3cret@localhost:7120"},
		{"fixed", "--redis=", "redis://user:s3cret@host"},
		{"fixed", "-redis=redis://user:s3cret@host"},
		{"fixed", "--=redis://user:s3cret@host"},
		{"fixed", "--rediss=redis://user:s3cret@host"},
		{"redis://user:s3cret@host"},
		{"help", "redis://user:s3cret@host"},
		{"drill", "redis://user:s3cret@host"},
		{"fixed", "--jaeger-url", "http://s3cret:s3cret@host/?key=s3cret"},
		{"live", "--grafana-url", "s3cret:s3cret@host"},
		{"verify", "--prometheus-url", "s3cret:s3cret@host"},
	} {
		out := run(t.Context(), t, nil, args...)
		if out.code == cli.ExitOK || strings.Contains(out.stdout+out.stderr, "s3cret") {
			t.Errorf("%q: exit %d, printed:\n%s%s", args, out.code, out.stdout, out.stderr)
		}
	}
}

// An HTTP client repeats its URL, with the user's name.
func TestVerifyDoesNotRepeatTheUserOfItsURLs(t *testing.T) {
	t.Parallel()
	receiver := otlptest.Start(t)
	records := t.TempDir()
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL}
	out := run(t.Context(), t, env, "fixed", "--workers", "2", "--rounds", "1", "--backend-latency", "10ms", "--redis", "embedded", "--records", records)
	equal(t, "exit code", out.code, cli.ExitOK)
	out = run(t.Context(), t, nil, "verify", "--records", records, "--prometheus-url", "http://s3cretuser:s3cret@127.0.0.1:1", "--patience", "0s")
	equal(t, "exit code", out.code, cli.ExitFailed)
	if !strings.Contains(out.stderr, "127.0.0.1:1/api/v1/query: dial tcp") || strings.Contains(out.stderr, "s3cret") {
		t.Errorf("printed:\n%s", out.stderr)
	}
}

// The client library reads such a text as localhost:6379.
func TestATargetWithoutSlashesIsRefused(t *testing.T) {
	t.Parallel()
	out := run(t.Context(), t, nil, "broken", "--redis", "redis:localhost:7120")
	equal(t, "exit code", out.code, cli.ExitUsage)
	if !strings.Contains(out.stderr, `--redis "***": want auto, embedded, or a URL like redis://`) {
		t.Errorf("printed:\n%s", out.stderr)
	}
}

// Nor do the errors of the exporters.
func TestTelemetryDoesNotRepeatTheUserOfItsURLs(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://s3cretuser:s3cret@127.0.0.1:1/?key=s3cret", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
		out := run(t.Context(), t, env, "fixed", "--redis", "embedded", "--telemetry", "on")
		equal(t, "exit code", out.code, cli.ExitFailed)
		if !strings.Contains(out.stderr, "127.0.0.1:1") || strings.Contains(out.stdout+out.stderr, "s3cret") {
			t.Errorf("%s, printed:\n%s%s", protocol, out.stdout, out.stderr)
		}
	}
}
