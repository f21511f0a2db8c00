package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates for tests. Its own is in File, PEM.
type Authority struct {
	File string

	t           testing.TB
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes an authority that no system knows.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t}
	about := &x509.Certificate{Subject: pkix.Name{CommonName: "an authority of tests"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.certificate = about
	var der []byte
	der, a.key = a.sign(about, nil)
	a.File = a.write("CERTIFICATE", der)
	var err error
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

// Issue signs a certificate for these hosts, and a client, and returns the files with it and its key.
func (a *Authority) Issue(hosts ...string) (cert, key string) {
	a.t.Helper()
	return a.IssueUntil(time.Now().Add(time.Hour), hosts...)
}

// IssueUntil is Issue of a certificate that is valid until then.
func (a *Authority) IssueUntil(until time.Time, hosts ...string) (cert, key string) {
	a.t.Helper()
	about := &x509.Certificate{Subject: pkix.Name{CommonName: "a test"}, NotAfter: until}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			about.IPAddresses = append(about.IPAddresses, ip)
		} else {
			about.DNSNames = append(about.DNSNames, host)
		}
	}
	der, private := a.sign(about, a.key)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write("CERTIFICATE", der), a.write("PRIVATE KEY", secret)
}

// sign makes a key and a certificate for it, which signs itself if there is no other key.
func (a *Authority) sign(about *x509.Certificate, with *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if with == nil {
		with = private
	}
	about.SerialNumber, about.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, about, a.certificate, &private.PublicKey, with)
	if err != nil {
		a.t.Fatal(err)
	}
	return der, private
}

func (a *Authority) write(kind string, der []byte) (file string) {
	a.t.Helper()
	file = filepath.Join(a.t.TempDir(), "test.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}
