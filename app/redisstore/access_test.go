package redisstore_test

import (
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

// enter is prepare on the way that a address says.
func enter(t *testing.T, a redisstore.Address) error {
	t.Helper()
	target, err := a.Target()
	if err != nil {
		t.Fatal(err)
	}
	return prepareAt(t, target, hotLock)
}

func write(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The ways in that work, and again with the address that another process of the run gets.
func TestARedisIsReachedByEachWayIn(t *testing.T) {
	ours := redistest.NewAuthority(t)
	cert, key := ours.Issue()
	both := write(t, read(t, cert)+read(t, key))
	elsewhere, elsewhereKey := ours.Issue("redis.example")
	for _, test := range []struct {
		name    string
		address func(t *testing.T) redisstore.Address
	}{
		{"own authority", func(t *testing.T) redisstore.Address {
			return redisstore.Address{URL: "rediss://" + redistest.StartTLS(t, ours, "", "", "--tls-auth-clients", "no"), Access: redisstore.Access{CA: ours.File}}
		}},
		{"own authority among others", func(t *testing.T) redisstore.Address {
			bundle := write(t, "# others\n"+read(t, redistest.NewAuthority(t).File)+"\n# ours\n"+read(t, ours.File))
			return redisstore.Address{URL: "rediss://" + redistest.StartTLS(t, ours, "", "", "--tls-auth-clients", "no"), Access: redisstore.Access{CA: bundle}}
		}},
		{"client certificate", func(t *testing.T) redisstore.Address {
			return redisstore.Address{URL: "rediss://" + redistest.StartTLS(t, ours, "", ""), Access: redisstore.Access{CA: ours.File, Cert: cert, Key: key}}
		}},
		{"client certificate and key in one file", func(t *testing.T) redisstore.Address {
			return redisstore.Address{URL: "rediss://" + redistest.StartTLS(t, ours, "", ""), Access: redisstore.Access{CA: ours.File, Cert: both, Key: both}}
		}},
		{"whoever answers", func(t *testing.T) redisstore.Address {
			return redisstore.Address{URL: "rediss://" + redistest.StartTLS(t, ours, "", "", "--tls-auth-clients", "no") + "?skip_verify=true"}
		}},
		{"the certificate of another name", func(t *testing.T) redisstore.Address {
			addr := redistest.StartTLS(t, ours, elsewhere, elsewhereKey, "--tls-auth-clients", "no")
			return redisstore.Address{URL: "rediss://" + addr, Access: redisstore.Access{CA: ours.File, ServerName: "redis.example"}}
		}},
		{"password of a file", func(t *testing.T) redisstore.Address {
			url := redistest.Start(t, "--requirepass", "p@ss w/rd").URL()
			return redisstore.Address{URL: url, Access: redisstore.Access{PasswordFile: write(t, "p@ss w/rd\n")}}
		}},
		{"user of the URL, password of a file", func(t *testing.T) redisstore.Address {
			server := redistest.Start(t, "--user", "default", "off", "--user", "alice", "on", ">s3cret", "~*", "&*", "+@all")
			return redisstore.Address{URL: "redis://alice@" + server.Addr() + "/3", Access: redisstore.Access{PasswordFile: write(t, "s3cret\r\n")}}
		}},
		{"socket, with the password of a file", func(t *testing.T) redisstore.Address {
			socket := filepath.Join(t.TempDir(), "redis.sock")
			redistest.Start(t, "--unixsocket", socket, "--requirepass", "s3cret")
			return redisstore.Address{URL: "unix://" + socket, Access: redisstore.Access{PasswordFile: write(t, "s3cret")}}
		}},
		{"IPv6", func(t *testing.T) redisstore.Address {
			server := redistest.Start(t, "--bind", "127.0.0.1", "::1")
			return redisstore.Address{URL: "redis://[::1]" + strings.TrimPrefix(server.Addr(), "127.0.0.1")}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			address := test.address(t)
			if err := enter(t, address); err != nil {
				t.Error(err)
			}
			target, err := address.Target()
			if err != nil {
				t.Fatal(err)
			}
			if file := address.PasswordFile; file != "" { // a pipe has no more to say
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
			if err := enter(t, target.Address()); err != nil {
				t.Errorf("another process: %v", err)
			}
			if shown := target.String() + target.Location(); strings.Contains(shown, "s3cret") || strings.Contains(shown, "p@ss") || strings.Contains(shown, "p%40ss") {
				t.Errorf("shown as %s", shown)
			}
		})
	}
}

// The system's own authorities are those of SSL_CERT_FILE.
func TestTheSystemsAuthoritiesAreTrusted(t *testing.T) {
	const asked = "TEST_TLS_URL" // of the test again, as a process: SSL_CERT_FILE is read once in a process
	if url := os.Getenv(asked); url != "" {
		if err := prepare(t, url, hotLock); err != nil {
			t.Error(err)
		}
		return
	}
	ours := redistest.NewAuthority(t)
	url := "rediss://" + redistest.StartTLS(t, ours, "", "", "--tls-auth-clients", "no")
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	again.Env = append(os.Environ(), "SSL_CERT_FILE="+ours.File, asked+"="+url)
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("with SSL_CERT_FILE: %v\n%s", err, out)
	}
}

// What is wrong with the files is said before anything is dialled.
func TestWhatIsWrongWithAFileIsNamed(t *testing.T) {
	ours := redistest.NewAuthority(t)
	cert, key := ours.Issue()
	_, otherKey := ours.Issue()
	old, oldKey := ours.IssueUntil(time.Now().Add(-time.Hour))
	encrypted := write(t, string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("secret")})))
	noPEM, empty, two := write(t, "hello"), write(t, "\n"), write(t, "s3cret\nmore\n")
	const secure, plain = "rediss://host", "redis://host"
	for _, test := range []struct {
		name, url string
		access    redisstore.Access
		want      string
	}{
		{"no such authority", secure, redisstore.Access{CA: "/no/ca.pem"}, `--redis-ca "/no/ca.pem": cannot be read: no such file or directory`},
		{"a folder", secure, redisstore.Access{CA: "/"}, `--redis-ca "/": cannot be read: is a directory`},
		{"no authority in it", secure, redisstore.Access{CA: noPEM}, `want a certificate in PEM form (-----BEGIN CERTIFICATE-----)`},
		{"a key for an authority", secure, redisstore.Access{CA: key}, `--redis-ca "` + key + `": want a certificate`},
		{"an authority of the past", secure, redisstore.Access{CA: old}, `--redis-ca "` + old + `": the certificate expired on 20`},
		{"an authority, and trust in all", secure + "?skip_verify=true", redisstore.Access{CA: ours.File}, "leave one of them out"},
		{"no such certificate", secure, redisstore.Access{Cert: "/no/cert.pem", Key: key}, `--redis-cert "/no/cert.pem": cannot be read: no such file or directory`},
		{"no such key", secure, redisstore.Access{Cert: cert, Key: "/no/key.pem"}, `--redis-key "/no/key.pem": cannot be read: no such file or directory`},
		{"a certificate without key", secure, redisstore.Access{Cert: cert}, "--redis-cert and --redis-key belong together"},
		{"a key without certificate", secure, redisstore.Access{Key: key}, "--redis-cert and --redis-key belong together"},
		{"no key in it", secure, redisstore.Access{Cert: cert, Key: noPEM}, `--redis-key "` + noPEM + `": want a private key in PEM form`},
		{"the key of another", secure, redisstore.Access{Cert: cert, Key: otherKey}, `it is not the key of the certificate in --redis-cert "` + cert + `"`},
		{"an encrypted key", secure, redisstore.Access{Cert: cert, Key: encrypted}, `the key is encrypted: write it without its passphrase (openssl pkey -in ` + encrypted},
		{"a certificate of the past", secure, redisstore.Access{Cert: old, Key: oldKey}, `--redis-cert "` + old + `": the certificate expired on 20`},
		{"plain text", plain, redisstore.Access{CA: ours.File}, "write rediss:// in --redis"},
		{"plain text, and a name", plain, redisstore.Access{ServerName: "host"}, "write rediss:// in --redis"},
		{"a socket", "unix:///tmp/redis.sock", redisstore.Access{Cert: cert, Key: key}, "write rediss:// in --redis"},
		{"auto", "auto", redisstore.Access{CA: ours.File}, "write rediss:// in --redis"},
		{"embedded", "embedded", redisstore.Access{PasswordFile: two}, "--redis is embedded"},
		{"no such password", plain, redisstore.Access{PasswordFile: "/no/password"}, `--redis-password-file "/no/password": cannot be read: no such file or directory`},
		{"no password in it", plain, redisstore.Access{PasswordFile: empty}, "want the password on one line"},
		{"more than a password", plain, redisstore.Access{PasswordFile: two}, "want the password on one line"},
		{"two passwords", "redis://:s3cret@host", redisstore.Access{PasswordFile: two}, "both hold a password"},
		{"a user alone", "redis://alice@host", redisstore.Access{}, "a user without a password"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := redisstore.Address{URL: test.url, Access: test.access}.Target()
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
	_, err := redisstore.Address{URL: secure, Access: redisstore.Access{CA: noPEM, Cert: cert, PasswordFile: empty}}.Target()
	var all interface{ Unwrap() []error }
	if !errors.As(err, &all) || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("three faults are told as: %v", err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
