use super::{frame::encode, *};
use proptest::prelude::*;
use tokio::net::TcpListener;

fn decode_in_pieces(bytes: &[u8], piece: usize) -> io::Result<Vec<Item>> {
    let (mut decoder, mut buffer, mut items) = (Decoder::default(), BytesMut::new(), Vec::new());
    for chunk in bytes.chunks(piece.max(1)) {
        buffer.extend_from_slice(chunk);
        while let Some(item) = decoder.decode(&mut buffer)? {
            items.push(item);
        }
    }
    Ok(items)
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded_however_it_arrives(
        messages in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 1..6), 0..6),
        piece in 1usize..700,
    ) {
        let mut bytes = Vec::new();
        for message in &messages {
            let parts: Vec<&[u8]> = message.iter().map(Vec::as_slice).collect();
            bytes.extend(encode(&parts));
        }
        let want: Vec<Item> = messages
            .into_iter()
            .map(|parts| Item::Message(parts.into_iter().map(Bytes::from).collect()))
            .collect();
        prop_assert_eq!(decode_in_pieces(&bytes, piece).unwrap(), want);
    }

    #[test]
    fn no_bytes_make_it_panic_or_keep_more_than_its_bound(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        piece in 1usize..100,
    ) {
        if let Ok(items) = decode_in_pieces(&bytes, piece) {
            for item in items {
                if let Item::Message(parts) = item {
                    prop_assert!(parts.iter().map(Bytes::len).sum::<usize>() <= bytes.len());
                }
            }
        }
    }
}

#[test]
fn a_message_beyond_the_bound_is_dropped_and_the_next_one_is_not() {
    let half = vec![7; MESSAGE_BYTES_MAX / 2 + 1];
    let mut bytes = encode(&[b"id", &half, &half, b"end"]);
    bytes.extend(encode(&[b"next"]));
    let items = decode_in_pieces(&bytes, 1 << 20).unwrap();
    assert_eq!(items, [Item::TooLarge, Item::Message(vec![Bytes::from_static(b"next")])]);

    let many: Vec<&[u8]> = vec![b"x"; 1000];
    assert_eq!(decode_in_pieces(&encode(&many), 10).unwrap(), [Item::TooLarge]);
    // A peer that announces the largest size there is makes nothing grow.
    let mut endless = vec![2];
    endless.extend_from_slice(&u64::MAX.to_be_bytes());
    endless.extend_from_slice(&[0; 100]);
    let mut buffer = BytesMut::from(&endless[..]);
    assert_eq!(Decoder::default().decode(&mut buffer).unwrap(), None);
    assert!(buffer.is_empty());
}

#[test]
fn frames_that_cannot_be_are_refused() {
    for bytes in [&[0x08, 0][..], &[0x05, 0], &[0x06, 0, 0, 0, 0, 0, 1, 0, 0]] {
        assert!(decode_in_pieces(bytes, 100).is_err(), "{bytes:?}");
    }
}

/// What libzmq says first, followed by its READY with an empty identity.
async fn peer(listener: TcpListener, version: u8) -> (Vec<u8>, TcpStream) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut theirs = vec![0; GREETING_BYTES];
    stream.read_exact(&mut theirs).await.unwrap();
    let mut greeting = greeting();
    greeting[10] = version;
    stream.write_all(&greeting).await.unwrap();
    let ready =
        b"\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER\x08Identity\x00\x00\x00\x00";
    stream.write_all(ready).await.unwrap();
    (theirs, stream)
}

async fn meet(kind: Kind, version: u8) -> (io::Result<Socket>, Vec<u8>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ours = async { Socket::open(TcpStream::connect(address).await.unwrap(), kind).await };
    let (socket, (greeting, stream)) = tokio::join!(ours, peer(listener, version));
    (socket, greeting, stream)
}

#[tokio::test]
async fn a_subscriber_greets_says_what_it_is_and_subscribes_to_all() {
    let (socket, greeting, mut stream) = meet(Kind::Subscriber, 3).await;
    assert_eq!(&greeting[..16], b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL");
    let mut said = [0; 32];
    stream.read_exact(&mut said[..30]).await.unwrap();
    assert_eq!(&said[..27], b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB");
    assert_eq!(&said[27..30], b"\0\x01\x01");
    let mut socket = socket.unwrap();
    // A heartbeat is passed over.
    stream.write_all(b"\x04\x07\x04PING\0\0").await.unwrap();
    stream.write_all(&encode(&[b"topic", b"", b"body"])).await.unwrap();
    let Incoming::Message(parts) = socket.receive().await.unwrap() else { panic!("too large") };
    assert_eq!(parts, ["topic", "", "body"]);
    drop(stream);
    let end = socket.receive().await.unwrap_err();
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn an_old_peer_is_refused() {
    let (socket, ..) = meet(Kind::Dealer, 1).await;
    assert_eq!(socket.unwrap_err().kind(), io::ErrorKind::InvalidData);
}
