package redistest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
)

// Script is a server that answers as it is told, for the words of servers that are not on the machine.
type Script func(command []string) (reply string)

// Replies of the protocol.
const (
	OK  = "+OK\r\n"
	Nil = "$-1\r\n"
)

// Err is an error in a server's words.
func Err(words string) string { return "-" + words + "\r\n" }

// Bulk is a text.
func Bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

// Int is a number.
func Int(n int) string { return ":" + strconv.Itoa(n) + "\r\n" }

// Absent answers as an old server does that holds nothing: without HELLO, and each GET finds nothing.
func Absent(command []string) string {
	switch strings.ToUpper(command[0]) {
	case "PING":
		return "+PONG\r\n"
	case "HELLO":
		return Err("ERR unknown command 'HELLO'")
	case "GET":
		return Nil
	case "SET":
		return Nil
	case "PTTL":
		return Int(-2)
	case "EVAL":
		if command[2] == "2" { // store and release
			return "*3\r\n" + Int(1) + Int(1) + Nil
		}
		return Int(1)
	case "DEL":
		return Int(1)
	}
	return OK
}

// StartScript starts such a server on a free port of 127.0.0.1, stops it when the test ends, and returns its URL.
func StartScript(t testing.TB, script Script) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go script.serve(conn)
		}
	}()
	return "redis://" + listener.Addr().String()
}

// serve ends when the client hangs up.
func (s Script) serve(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		command, err := readCommand(in)
		if err != nil {
			return
		}
		if _, err := io.WriteString(conn, s(command)); err != nil {
			return
		}
	}
}

// readCommand reads an array of texts, or words on a line.
func readCommand(in *bufio.Reader) ([]string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "*") {
		return strings.Fields(line), nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil {
		return nil, err
	}
	command := make([]string, n)
	for i := range command {
		length, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(length, "$")))
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, err
		}
		command[i] = string(text[:size])
	}
	return command, nil
}
