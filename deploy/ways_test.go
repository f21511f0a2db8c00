//go:build e2e

package deploy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The ways in to a Redis as people run it: what is stored is what was printed, of fixed and woken, on each of them.
func TestEachWayInIsStoredAsItWasPrinted(t *testing.T) {
	s := startServers(t)
	folder, ports := t.TempDir(), unusedPorts(t, 2)
	port, secure := ports[0], ports[1]
	ca, cert, key := certificates(t, folder)
	socket, password := filepath.Join(folder, "redis.sock"), filepath.Join(folder, "password")
	if err := os.WriteFile(password, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rights := strings.Fields(find1(t, read(t, "../app/README.md"), `(?m)^ +ACL SETUSER lab on >PASSWORD (.+)$`))
	args := []string{"--port", port, "--bind", "127.0.0.1", "::1", "--save", "", "--appendonly", "no", "--dir", folder, "--unixsocket", socket,
		"--tls-port", secure, "--tls-ca-cert-file", ca, "--tls-cert-file", cert, "--tls-key-file", key, "--user", "lab", "on", ">s3cret"}
	start(t, nil, "redis-server", append(args, rights...)...)
	eventually(t, startLimit, "redis-server is ready", func() error {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	for _, way := range []struct {
		name  string
		args  []string // after --redis
		count bool     // Redis's own count is to be had
	}{
		{"a port", []string{"redis://127.0.0.1:" + port}, true},
		{"IPv6", []string{"redis://[::1]:" + port}, true},
		{"a socket", []string{"unix://" + socket}, true},
		{"TLS, own authority, client certificate", []string{"rediss://127.0.0.1:" + secure, "--redis-ca", ca, "--redis-cert", cert, "--redis-key", key}, true},
		{"the user of the README", []string{"redis://lab@127.0.0.1:" + port, "--redis-password-file", password}, false},
	} {
		t.Run(way.name, func(t *testing.T) {
			for _, mode := range []string{"fixed", "woken"} {
				r := s.lab(t, append([]string{mode, "--ttl", "500ms", "--redis"}, way.args...)...)
				if r.code != 0 || !r.json.Verdict.OK || r.json.BackendCalls != 5 {
					t.Fatalf("%s: exit %d, %d backend calls:\n%s", mode, r.code, r.json.BackendCalls, r.out)
				}
				v := s.lab(t, "verify")
				rows := find1(t, v.out, `(\d+) rows equal`)
				agree := "the app, Redis, Jaeger and Prometheus agree"
				if !way.count {
					agree = "not available"
				}
				if v.code != 0 || !strings.Contains(v.out, agree) || regexp.MustCompile(`(?m) differs +│$`).MatchString(v.out) {
					t.Fatalf("%s: verify: exit %d:\n%s", mode, v.code, v.out)
				}
				t.Logf("%s: %s rows equal: %s", mode, rows, tail(v.out, 1))
			}
		})
	}
}

// certificates makes an authority that no system knows, and one certificate that it signed, for 127.0.0.1 and for clients.
func certificates(t *testing.T, folder string) (ca, cert, key string) {
	t.Helper()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(about, by *x509.Certificate) []byte {
		about.SerialNumber, about.NotBefore, about.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, about, by, &private.PublicKey, private)
		if err != nil {
			t.Fatal(fmt.Errorf("sign a certificate: %w", err))
		}
		return der
	}
	authority := &x509.Certificate{Subject: pkix.Name{CommonName: "an authority of tests"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	ca = write("ca.pem", "CERTIFICATE", sign(authority, authority))
	cert = write("cert.pem", "CERTIFICATE", sign(&x509.Certificate{Subject: pkix.Name{CommonName: "a test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, authority))
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return ca, cert, write("key.pem", "PRIVATE KEY", secret)
}
