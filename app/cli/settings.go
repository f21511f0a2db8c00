package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"cachelab/app/cache"
	"cachelab/app/lab"
	"cachelab/app/redisstore"
	"cachelab/telemetry"
	"cachelab/telemetry/redact"
)

// settings are the flags of a run and the variables of the same names. A flag wins over its variable, the
// variable over the default. Nothing is judged before all are known, so that all faults are told at once.
type settings struct {
	all []*setting

	lab.Config
	access                redisstore.Access
	json, report, results string
	verify                bool
	jaeger, prometheus    string // query APIs
	rank                  int
}

// setting is one of them. It implements [pflag.Value], and takes any text.
type setting struct {
	name    string
	usage   string
	text    string
	from    string // where the text is from, as the user would find it
	boolean bool
	fixed   bool // by the command: it is no flag
	secret  bool // may hold a password
	parse   func(string) error
	same    func(a, b string) bool // whether two texts mean the same
}

func (s *setting) String() string { return s.text }
func (s *setting) Type() string   { return "" }

func (s *setting) Set(text string) error {
	s.text, s.from = text, "--"+s.name
	return nil
}

// variable is the environment variable of the same name.
func (s *setting) variable() string {
	return variableOf(s.name)
}

// defaultRecords is git-ignored.
const defaultRecords = ".cachelab/runs"

// Bounds that keep a mistyped number from eating the machine.
const (
	maxWorkers   = 100_000 // in all processes
	maxProcesses = 64
	maxRounds    = 1_000_000
)

// defaults are what differs between the commands.
type defaults struct {
	workers, rounds string
	quiet           string
	others          map[string]string // of a drill, by the flag's name
	fixed           []string          // flags that do not exist here, nor their variables
}

func usual() defaults { return defaults{workers: "50", rounds: "5", quiet: "false"} }
func large() defaults { return defaults{workers: "500", rounds: "10", quiet: "true"} }

func newSettings(d defaults) *settings {
	s := &settings{}
	add(s, "workers", d.workers, "how many ask in each round, in each process", &s.Workers, integer(1, maxWorkers))
	s.addFleet()
	add(s, "rounds", d.rounds, "how many times the key expires", &s.Rounds, integer(1, maxRounds))
	add(s, "key", "product:42:price", "the hot key; its fill lock is KEY:filling", &s.Key, keyName)
	add(s, "ttl", "3s", "expiry of the cached value", &s.TTL, duration(time.Millisecond))
	add(s, "ttl-jitter", "0", "fraction by which each fill spreads the TTL: 0.2 or 20%", &s.TTLJitter, fraction)
	add(s, "lock-ttl", "10s", "expiry of the fill lock; longer than a fill", &s.LockTTL, duration(time.Millisecond))
	add(s, "wait-timeout", "", "a waiter's limit (default: lock TTL + 2 x backend latency + 1s, and 1s for each 5,000 workers)", &s.WaitTimeout,
		optional(duration(time.Millisecond)))
	s.addBackend()
	add(s, "backend", "", "URL of a cachelab backend to call, instead of the backend inside", &s.BackendURL, optional(backendURL)).secret = true
	add(s, "redis", "auto", "auto (localhost:6379 if it answers, else embedded), embedded, or a URL", &s.Redis,
		redisstore.ParseTarget).secret = true
	add(s, "redis-ca", "", "certificates of the authorities to trust with rediss://, PEM, instead of the system's", &s.access.CA, text)
	add(s, "redis-cert", "", "the client's own certificate, PEM, where the server wants one", &s.access.Cert, text)
	add(s, "redis-key", "", "the key of --redis-cert, PEM; it may be the same file", &s.access.Key, text)
	add(s, "redis-sni", "", "the name to ask for and to find in the server's certificate (default: the host)", &s.access.ServerName, text)
	add(s, "redis-password-file", "", "a file with the password, for who does not want it in the URL", &s.access.PasswordFile, text)
	add(s, "telemetry", "auto", "auto (traces and metrics where somebody listens), on, or off; OTEL_* variables are obeyed", &s.Telemetry,
		telemetry.ParseSwitch)
	add(s, "jaeger-url", "http://127.0.0.1:16686", "Jaeger's page, for the links that are printed", &s.Links.Jaeger, pageURL).secret = true
	add(s, "grafana-url", "http://127.0.0.1:3000", "Grafana's page, for the links that are printed", &s.Links.Grafana, pageURL).secret = true
	add(s, "json", "", "write the run as JSON to FILE; - is standard output, and the rest goes to standard error",
		&s.json, text)
	add(s, "records", defaultRecords, "folder in which runs are recorded for verify; empty = not", &s.Records, text)
	add(s, "results", "", "keep what each request brought back in FILE, for fold: JSON lines", &s.results, text)
	add(s, "verify", "false", "verify each run right after it: Jaeger keeps the newest traces only", &s.verify, boolean).boolean = true
	add(s, "jaeger-api", "", "Jaeger's query API, for --verify (default: --jaeger-url)", &s.jaeger, optional(apiURL)).secret = true
	add(s, "prometheus-url", "http://127.0.0.1:9090", "Prometheus's query API, for --verify", &s.prometheus, apiURL).secret = true
	add(s, "report", "", "write the run as one HTML page with its pictures to FILE", &s.report, text)
	add(s, "quiet", d.quiet, "no line for each step", &s.Quiet, boolean).boolean = true
	for _, one := range s.all {
		if value, ok := d.others[one.name]; ok {
			one.text = value
		}
		one.fixed = slices.Contains(d.fixed, one.name)
	}
	return s
}

func add[T any](s *settings, name, value, usage string, into *T, parse func(string) (T, error)) *setting {
	one := &setting{name: name, text: value, usage: usage, from: "default", parse: func(text string) error {
		value, err := parse(text)
		*into = value
		return err
	}}
	one.same = func(a, b string) bool {
		left, errLeft := parse(a)
		right, errRight := parse(b)
		return a == b || errLeft == nil && errRight == nil && reflect.DeepEqual(left, right)
	}
	s.all = append(s.all, one)
	return one
}

// find returns a setting by its name; nil if there is none.
func (s *settings) find(name string) *setting {
	for _, one := range s.all {
		if one.name == name {
			return one
		}
	}
	return nil
}

// register makes them flags.
func (s *settings) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	for _, one := range s.all {
		if one.fixed {
			continue
		}
		f := flags.VarPF(one, one.name, "", one.usage)
		if one.boolean {
			f.NoOptDefVal = "true"
		}
	}
}

// resolve reads the variables, then everything. The error lists all faults with the values given.
func (s *settings) resolve(lookup func(string) (string, bool)) error {
	var faults []error
	for _, one := range s.all {
		if value, ok := lookup(one.variable()); ok && one.from == "default" && !one.fixed {
			one.text, one.from = value, one.variable()
		}
		if err := one.parse(one.text); err != nil {
			faults = append(faults, fault{one.name, fmt.Errorf("%s %q: %w", one.from, one.shown(), err)})
		}
	}
	if s.Redis != (redisstore.Target{}) { // else its fault is told already
		redis, err := s.Redis.With(s.access)
		s.Redis, faults = redis, append(faults, err)
	}
	faults = append(faults, s.checkFleet()...)
	if s.BackendURL == "" {
		s.derive()
	}
	return errors.Join(append(faults, s.checkBackend(), s.checkFiles())...)
}

// derive derives what was left out from what the backend is like.
func (s *settings) derive() {
	if s.WaitTimeout == 0 {
		s.WaitTimeout = s.LockTTL + 2*s.Backend.Latency + time.Second + redisstore.Passage(s.Workers*max(1, s.Processes+s.Joiners))
	}
	if s.Ahead.Grace == 0 {
		s.Ahead.Grace = max(s.TTL, s.LockTTL+s.longestCall())
	}
}

// fault is what is wrong with one setting.
type fault struct {
	setting string
	error
}

func (f fault) Unwrap() error { return f.error }

func (one *setting) shown() string {
	if one.secret {
		return redact.URL(one.text)
	}
	return one.text
}

// checkFiles finds out now, not after the run, whether the files can be written.
func (s *settings) checkFiles() error {
	var errs []error
	if s.json != "-" {
		errs = append(errs, checkFile("--json", s.json))
	}
	taken := map[string]string{s.json: "--json"}
	for _, one := range []struct{ flag, name string }{{"--results", s.results}, {"--report", s.report}} {
		switch other := taken[one.name]; {
		case one.name == "-":
			errs = append(errs, fmt.Errorf(`%s "-": want the name of a file`, one.flag))
		case one.name != "" && other != "":
			errs = append(errs, fmt.Errorf("%s %q: %s writes to the same file", one.flag, one.name, other))
		default:
			errs = append(errs, checkFile(one.flag, one.name))
			taken[one.name] = one.flag
		}
	}
	if s.verify && s.Records == "" {
		errs = append(errs, errors.New("--verify needs the record of the run: give --records a folder"))
	}
	return errors.Join(errs...)
}

// checkFile opens the file for writing. It leaves what is in it, and no new file.
func checkFile(flag, name string) error {
	if name == "" {
		return nil
	}
	_, err := os.Stat(name)
	isNew := errors.Is(err, fs.ErrNotExist)
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("%s %q: %w", flag, name, err)
	}
	err = file.Close()
	if isNew {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// warnings name the rules that the settings break, which is allowed: that is what a lab is for.
func (s *settings) warnings(plans []lab.Plan) []string {
	if !slices.ContainsFunc(plans, func(p lab.Plan) bool { return p.Mode.Locks }) {
		return nil
	}
	var all []string
	if longest := s.longestCall(); s.LockTTL <= longest {
		all = append(all, fmt.Sprintf("the lock TTL (%v) is not longer than a backend call (up to %v): the fill lock's TTL must be longer than the fill, or fills overlap",
			s.LockTTL, longest))
	}
	if s.WaitTimeout <= s.LockTTL {
		all = append(all, fmt.Sprintf("the wait timeout (%v) is not longer than the lock TTL (%v): a winner that dies takes its waiters along",
			s.WaitTimeout, s.LockTTL))
	}
	if slices.ContainsFunc(plans, func(p lab.Plan) bool { return p.Mode.Grace }) && s.Ahead.Grace < s.LockTTL {
		all = append(all, fmt.Sprintf("the grace time (%v) is shorter than the lock TTL (%v): after a refresher that dies all wait, until its lock ends",
			s.Ahead.Grace, s.LockTTL))
	}
	if workers := s.Workers * max(1, s.Processes+s.Joiners); s.TTL < redisstore.Passage(workers) {
		all = append(all, fmt.Sprintf("the TTL (%v) is shorter than the time that %d workers may take to read the value (%v): it may expire again in a round, and be filled again",
			s.TTL, workers, redisstore.Passage(workers)))
	}
	if s.TTL < 100*time.Millisecond {
		all = append(all, fmt.Sprintf("the TTL (%v) is shorter than two pauses of a waiter (50ms each): the value may expire before a waiter looks", s.TTL))
	}
	return all
}

// longestCall is that of a backend without a queue.
func (s *settings) longestCall() time.Duration {
	return time.Duration(float64(s.Backend.Latency) * (1 + s.Backend.Jitter))
}

func keyName(s string) (string, error) {
	_, ofLock := strings.CutSuffix(s, cache.LockKey(""))
	switch {
	case s == "":
		return s, errors.New("want a name")
	case ofLock:
		return s, fmt.Errorf("%s is what a fill lock is called: want another name", cache.LockKey("..."))
	}
	return s, nil
}

func text(s string) (string, error) { return s, nil }

func pageURL(s string) (string, error) {
	u, ok := redact.Parse(s)
	if !ok || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return s, errors.New("want a URL like http://localhost:3000")
	}
	u.User = nil // it is printed
	return u.String(), nil
}

// apiURL is a URL that is asked, not printed: it may hold user and password.
func apiURL(s string) (string, error) {
	_, err := pageURL(s)
	return s, err
}

func boolean(s string) (bool, error) {
	value, err := strconv.ParseBool(s)
	if err != nil {
		return false, errors.New("want true or false")
	}
	return value, nil
}

func integer(low, high int) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return n, fmt.Errorf("want a whole number from %d to %d", low, high)
		}
		return n, nil
	}
}

func seed(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, errors.New("want a whole number, 0 or more")
	}
	return n, nil
}

// maxRate is what a herd of this kind of process can send without being late by itself.
const maxRate = 10_000

// factor reads how eager early is.
func factor(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f > 0 && f <= 100) {
		return f, errors.New("want a number, more than 0 and at most 100")
	}
	return f, nil
}

func perSecond(s string) (float64, error) {
	rate, err := strconv.ParseFloat(s, 64)
	if err != nil || !(rate > 0 && rate <= maxRate) {
		return rate, fmt.Errorf("want a number of requests a second, more than 0 and at most %d", maxRate)
	}
	return rate, nil
}

func duration(low time.Duration) func(string) (time.Duration, error) {
	return func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		switch {
		case err != nil || d < low:
			return d, fmt.Errorf("want a duration with its unit, like 250ms or 3s, of at least %v", low)
		case d > maxDuration:
			return d, fmt.Errorf("want at most %v", maxDuration)
		}
		return d, nil
	}
}

const maxDuration = 24 * time.Hour

func optional[T any](parse func(string) (T, error)) func(string) (T, error) {
	return func(s string) (value T, err error) {
		if s == "" {
			return value, nil
		}
		return parse(s)
	}
}

func fraction(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	f, err := strconv.ParseFloat(number, 64)
	if percent {
		f /= 100
	}
	if err != nil || math.IsNaN(f) || f < 0 || f > 1 {
		return f, errors.New("want a fraction from 0 to 1, like 0.2 or 20%")
	}
	return f, nil
}
