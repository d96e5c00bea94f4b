//! Settings of QUIC: quinn's defaults, except where a limit would be other than the path's.

use std::sync::Arc;

use quinn_proto::congestion::{Bbr, BbrConfig, ControllerFactory, Cubic, CubicConfig};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::rustls::crypto::ring;
use quinn_proto::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use quinn_proto::rustls::version::TLS13;
use quinn_proto::rustls::{self, RootCertStore};
use quinn_proto::{ClientConfig, Connection, ServerConfig, TransportConfig, VarInt};

use super::super::workload::Workload;

/// Name in the certificate.
pub(super) const NAME: &str = "testbed";
/// Certificate of all servers, valid until 2120. Clients accept no other.
static CERTIFICATE: &[u8] = include_bytes!("certificate.der");
/// Key of [`CERTIFICATE`] (PKCS #8). It is no secret: only hosts of a testbed use it.
static KEY: &[u8] = include_bytes!("key.der");

/// Bytes of a full datagram: quinn's own upper bound, which fits into 1500 bytes with IPv6. It is fixed, so
/// that no probe of the path's MTU makes two runs differ.
const DATAGRAM_BYTES: u16 = 1452;
/// Window of a stream (bytes): 2000 full datagrams. It limits a flow to 100 Mbit/s at 232 ms. Quinn closes a connection if more than 2048 pieces of a
/// stream wait for earlier ones, with more than 1024 gaps (`assembler.rs` of quinn-proto 0.11.19). At twice as
/// much, losses in slow start or of BBR do that.
const WINDOW_BYTES: u32 = 2000 * DATAGRAM_BYTES as u32;
/// Bytes that a connection may buffer for sending, over all streams: far more than the answers of a page.
const SEND_BYTES: u64 = 64 << 20;

/// The algorithms of quinn that flows may have.
fn controller(cc: &str) -> Arc<dyn ControllerFactory + Send + Sync> {
    if cc == "bbr" { Arc::new(BbrConfig::default()) } else { Arc::new(CubicConfig::default()) }
}

/// Name of the algorithm that controls `connection`; `None`: neither of these.
pub(super) fn algorithm(connection: &Connection) -> Option<&'static str> {
    let controller = connection.congestion_state().clone_box().into_any();
    let (cubic, bbr) = (controller.is::<Cubic>(), controller.is::<Bbr>());
    cubic.then_some("cubic").or(bbr.then_some("bbr"))
}

fn transport(workload: &Workload) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .congestion_controller_factory(controller(&workload.socket_cc))
        .initial_mtu(DATAGRAM_BYTES)
        .min_mtu(DATAGRAM_BYTES)
        .mtu_discovery_config(None)
        // Each packet on the link is one datagram, as on a wire.
        .enable_segmentation_offload(false)
        .stream_receive_window(VarInt::from_u32(WINDOW_BYTES))
        .send_window(SEND_BYTES)
        // As over TCP, a connection may be idle between two requests.
        .max_idle_timeout(None);
    Arc::new(config)
}

/// Servers of `workload`.
pub(super) fn server(workload: &Workload) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(KEY));
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .expect("ring has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(CERTIFICATE)], key)
        .expect("the certificate fits its key");
    let crypto = QuicServerConfig::try_from(config).expect("ring has the suite of first packets");
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport(workload));
    Arc::new(config)
}

/// Clients of [`server`].
pub(super) fn client(workload: &Workload) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(CERTIFICATE)).expect("the certificate is well-formed");
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .expect("ring has TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let crypto = QuicClientConfig::try_from(config).expect("ring has the suite of first packets");
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport(workload));
    config
}
