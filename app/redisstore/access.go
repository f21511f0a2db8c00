package redisstore

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// Access is what the way to a Redis may need beside its URL. All but ServerName are names of files.
type Access struct {
	CA           string // of the authorities that are trusted instead of the system's, PEM
	Cert, Key    string // the client's own certificate and its key, PEM
	ServerName   string // that is asked for and must be in the certificate; if "", the host that is dialled
	PasswordFile string // holds the password and nothing else
}

// Address is all that leads to a Redis, for another process of the same user. Its URL may hold a password.
type Address struct {
	URL string
	Access
}

// Target reads the files again.
func (a Address) Target() (Target, error) {
	t, err := ParseTarget(a.URL)
	if err != nil {
		return Target{}, err
	}
	return t.With(a.Access)
}

// Address returns what [Address.Target] makes the target of. The password's file is read once: it may be a pipe.
func (t Target) Address() Address {
	a := Address{t.url, t.access}
	a.PasswordFile = ""
	return a
}

// With returns the target as it is reached with a. The error lists all faults, by the flags of the command line, and does
// not repeat a password.
func (t Target) With(a Access) (Target, error) {
	if t.Embedded {
		if a != (Access{}) {
			return t, errors.New("--redis-ca and its like are for a Redis that is reached by a URL, and --redis is embedded")
		}
		return t, nil
	}
	options := *t.options
	t.options, t.access = &options, a
	return t, errors.Join(t.secure(), t.authenticate())
}

// secure reads the certificates.
func (t *Target) secure() error {
	a, o := t.access, t.options
	switch {
	case a.CA == "" && a.Cert == "" && a.Key == "" && a.ServerName == "":
		return nil
	case o.TLSConfig == nil:
		return errors.New("--redis-ca, --redis-cert, --redis-key and --redis-sni are for TLS: write rediss:// in --redis, or leave them out")
	}
	config := o.TLSConfig.Clone()
	o.TLSConfig, config.ServerName = config, a.ServerName
	var errs []error
	if a.CA != "" {
		if config.InsecureSkipVerify {
			errs = append(errs, errors.New("--redis-ca says whom to trust, and ?skip_verify=true in --redis trusts whoever answers: leave one of them out"))
		}
		config.RootCAs = x509.NewCertPool()
		certificates, _, err := readCertificates("--redis-ca", a.CA)
		if err == nil {
			err = expired("--redis-ca", a.CA, slices.MaxFunc(certificates, byExpiry))
		}
		errs = append(errs, err)
		for _, c := range certificates {
			config.RootCAs.AddCert(c)
		}
	}
	if a.Cert != "" || a.Key != "" {
		pair, err := readPair(a.Cert, a.Key)
		config.Certificates, errs = []tls.Certificate{pair}, append(errs, err)
	}
	return errors.Join(errs...)
}

// authenticate reads the password.
func (t *Target) authenticate() error {
	o, file := t.options, t.access.PasswordFile
	switch {
	case file == "" && o.Username != "" && o.Password == "":
		return errors.New("--redis names a user without a password, who would not be used: give the password in --redis-password-file FILE, or redis://user:password@host:port")
	case file == "":
		return nil
	case o.Password != "":
		return errors.New("--redis and --redis-password-file both hold a password: leave one of them out")
	}
	text, err := readFile("--redis-password-file", file)
	if err != nil {
		return err
	}
	o.Password = strings.TrimRight(string(text), "\r\n")
	if o.Password == "" || strings.ContainsAny(o.Password, "\r\n") {
		return fmt.Errorf("--redis-password-file %q: want the password on one line, and nothing else", file)
	}
	u, err := url.Parse(t.url)
	if err != nil { // it was parsed before
		return errors.New("--redis: not a URL")
	}
	u.User = url.UserPassword(o.Username, o.Password)
	t.url = u.String()
	return nil
}

// readPair reads the client's certificate and key.
func readPair(cert, key string) (tls.Certificate, error) {
	if cert == "" || key == "" {
		return tls.Certificate{}, errors.New("--redis-cert and --redis-key belong together: give both, which may be one file")
	}
	chain, certText, err := readCertificates("--redis-cert", cert)
	if err == nil {
		err = expired("--redis-cert", cert, chain[0])
	}
	keyText, keyErr := readFile("--redis-key", key)
	if err := errors.Join(err, keyErr); err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(certText, keyText)
	switch {
	case err == nil:
		return pair, nil
	case strings.Contains(string(keyText), "ENCRYPTED"):
		return pair, fmt.Errorf("--redis-key %q: the key is encrypted: write it without its passphrase (openssl pkey -in %[1]s -out FILE)", key)
	case strings.Contains(err.Error(), "does not match"):
		return pair, fmt.Errorf("--redis-key %q: it is not the key of the certificate in --redis-cert %q", key, cert)
	}
	return pair, fmt.Errorf("--redis-key %q: want a private key in PEM form (-----BEGIN PRIVATE KEY-----): %w", key, err)
}

// readCertificates returns the certificates of a file, one at least, and its text.
func readCertificates(flag, file string) (all []*x509.Certificate, text []byte, err error) {
	if text, err = readFile(flag, file); err != nil {
		return nil, nil, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, fmt.Errorf("%s %q: %w", flag, file, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, nil, fmt.Errorf("%s %q: want a certificate in PEM form (-----BEGIN CERTIFICATE-----)", flag, file)
	}
	return all, text, nil
}

func byExpiry(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }

func expired(flag, file string, c *x509.Certificate) error {
	if time.Now().Before(c.NotAfter) {
		return nil
	}
	return fmt.Errorf("%s %q: the certificate expired on %s: renew it", flag, file, c.NotAfter.UTC().Format(time.DateTime))
}

func readFile(flag, file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return nil, fmt.Errorf("%s %q: cannot be read: %w", flag, file, path.Err)
	}
	return text, err
}

// named says in an advice about a flag what it is now.
func (a Access) named(advice string) string {
	for flag, now := range map[string]string{"--redis-ca FILE": a.CA, "--redis-cert FILE": a.Cert, "--redis-sni NAME": a.ServerName,
		"--redis-password-file FILE": a.PasswordFile} {
		if now != "" {
			advice = strings.ReplaceAll(advice, flag, fmt.Sprintf("%s (now %q)", flag, now))
		}
	}
	return advice
}
